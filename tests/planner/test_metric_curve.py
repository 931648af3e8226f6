"""Curves: their validity, and what an attempt's curve says of another target."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.wire.environment import RunTarget
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome, retargeted

CURVE = MetricCurve((1.0, 2.0, 3.0, 4.0), (0.5, 0.8, 0.7, 0.8))
# Four epochs of 100 J and 10 s each; profiling the first took 30 J and 5 s more.
RUN = Observation(
    3, 0, 64, Outcome.REACHED, 4.0, 430.0, 45.0, 400.0, "GPU", 100.0, 10.0, other_target=True, curve=CURVE
)


@pytest.mark.parametrize(
    ("epochs", "metrics"),
    [
        ((1.0,), ()),
        ((1.0, 1.0), (0.5, 0.5)),
        ((2.0, 1.0), (0.5, 0.5)),
        ((0.0,), (0.5,)),
        ((1.0,), (math.nan,)),
        ((math.inf,), (0.5,)),
    ],
)
def test_an_invalid_curve_is_rejected(epochs: tuple[float, ...], metrics: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"epoch"):
        MetricCurve(epochs, metrics)


@given(st.lists(st.tuples(st.floats(), st.floats())), st.randoms(use_true_random=False))
def test_points_make_the_same_curve_in_any_order_and_number(points: list[tuple[float, float]], random: object) -> None:
    shuffled = [*points, *points]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    curve = MetricCurve.from_points(points)
    assert curve == MetricCurve.from_points(shuffled)
    valid = {e for e, m in points if math.isfinite(e) and e > 0 and math.isfinite(m)}
    assert (set() if curve is None else set(curve.epochs)) == valid


@pytest.mark.parametrize(
    ("target", "epochs"),
    [
        (RunTarget("accuracy", 0.75), 2.0),
        (RunTarget("accuracy", 0.7, consecutive_evaluations=2), 3.0),
        (RunTarget("accuracy", 0.75, consecutive_evaluations=2), None),
        (RunTarget("accuracy", 0.9), None),
        (RunTarget("loss", 0.7, maximize=False), 1.0),
    ],
)
def test_the_curve_of_another_target_gives_the_epochs_of_this_one(target: RunTarget, epochs: float | None) -> None:
    evidence = retargeted(RUN, target)
    assert not evidence.other_target
    if epochs is None:
        assert evidence == replace(RUN, outcome=Outcome.STOPPED, other_target=False, easier_target=True)
        return
    assert (evidence.outcome, evidence.epochs) == (Outcome.REACHED, epochs)
    # The overhead of profiling is still that of the first epoch.
    assert evidence.energy_joules == pytest.approx(100 * epochs + 30)
    assert evidence.time_seconds == pytest.approx(10 * epochs + 5)
    assert evidence.curve == CURVE.before(epochs)


def test_without_a_profile_energy_is_in_proportion_to_epochs() -> None:
    unprofiled = replace(RUN, epoch_energy_joules=None, epoch_time_seconds=None)
    evidence = retargeted(unprofiled, RunTarget("accuracy", 0.8))
    assert evidence.energy_joules / evidence.epochs == pytest.approx(430 / 4)


@pytest.mark.parametrize("outcome", [Outcome.STOPPED, Outcome.EXHAUSTED])
def test_an_attempt_that_missed_its_own_target_did_not_end_at_an_easier_one(outcome: Outcome) -> None:
    evidence = retargeted(replace(RUN, outcome=outcome), RunTarget("accuracy", 0.9))
    assert evidence == replace(RUN, outcome=Outcome.STOPPED, other_target=False)


@pytest.mark.parametrize("change", [{"curve": None}, {"outcome": Outcome.CRASHED}, {"epochs": 0.0}])
def test_an_attempt_without_information_about_epochs_says_nothing(change: dict[str, object]) -> None:
    assert retargeted(replace(RUN, **change), RunTarget("accuracy", 0.8)) is None  # type: ignore[arg-type]
