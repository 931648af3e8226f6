"""The prediction of final metrics: no attempt that would reach its target is ended as at its plateau."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.plateau_measurement import MEASURED, measured_jobs, misleading_jobs, plateau_jobs, tally_of
from support.synthetic_jobs import KINDS
from support.test_sets.parameters import exhaustive_after
from wattloop.wire.environment import RunTarget
from wattloop_planner.final_metric import predict_final_metric
from wattloop_planner.metric_curve import MetricCurve

EPOCHS = 60
TARGET = RunTarget("accuracy", 0.99)


def curve_of(metric: Callable[[int], float], epochs: int = EPOCHS) -> MetricCurve:
    return MetricCurve(
        tuple(float(each) for each in range(1, epochs + 1)), tuple(metric(each) for each in range(1, epochs + 1))
    )


def rising(end: float, speed: float) -> Callable[[int], float]:
    return lambda epoch: end * (1 - math.exp(-epoch / speed))


def plateau_of(curve: MetricCurve, references: list[MetricCurve], target: RunTarget = TARGET) -> float | None:
    """The epoch after which a run is found to be at its plateau."""
    for epoch in curve.epochs[:-1]:
        found = predict_final_metric(curve.before(epoch), epoch, target, EPOCHS, references)
        if found is not None and found.is_plateau:
            return epoch
    return None


@pytest.mark.parametrize("name", exhaustive_after(MEASURED))
def test_of_measured_runs_that_end_at_a_plateau_none_would_have_reached(name: str) -> None:
    tally = tally_of(measured_jobs(name, thresholds=24, orders=1))
    assert tally.wrong == 0
    assert tally.ended >= 1
    assert tally.covered >= 0.9 * tally.predictions


def test_of_synthetic_runs_with_plateaus_and_drops_of_the_learning_rate_none_would_have_reached() -> None:
    tally = tally_of(plateau_jobs(range(40)))
    assert (tally.wrong, tally.ended >= 20) == (0, True)
    assert tally.covered >= 0.9 * tally.predictions


@pytest.mark.parametrize("kind", KINDS)
def test_a_misleading_curve_ends_no_run_that_would_have_reached(kind: str) -> None:
    assert tally_of(misleading_jobs(kind, 6)).wrong == 0


def test_a_run_ends_at_its_plateau_once_a_whole_run_has_shown_that_nothing_follows() -> None:
    whole = curve_of(rising(0.9, 5))
    end = plateau_of(curve_of(rising(0.92, 5)), [whole])
    assert end <= 0.6 * EPOCHS
    assert plateau_of(curve_of(rising(0.92, 5)), []) is None


def test_a_run_that_is_flat_before_the_learning_rate_drops_goes_on() -> None:
    def dropping(epoch: int) -> float:
        return rising(0.7, 3)(epoch) + (rising(0.28, 2)(epoch - 45) if epoch > 45 else 0.0)

    end = plateau_of(curve_of(dropping), [curve_of(dropping)])
    assert end is None or end > 45


def test_a_run_whose_metric_never_moved_goes_on() -> None:
    assert plateau_of(curve_of(lambda epoch: 0.1), [curve_of(lambda epoch: 0.1)]) is None


@settings(max_examples=30, deadline=None)
@given(end=st.floats(0.5, 0.95), speed=st.floats(1.0, 20.0), whole=st.floats(0.5, 0.95), threshold=st.floats(0.96, 2.0))
def test_a_metric_to_minimize_is_predicted_as_its_negative(
    end: float, speed: float, whole: float, threshold: float
) -> None:
    curve, reference = curve_of(rising(end, speed)), curve_of(rising(whole, speed))
    found = predict_final_metric(curve.before(40), 40, RunTarget("m", threshold), EPOCHS, [reference])
    curve, reference = (MetricCurve(each.epochs, tuple(-m for m in each.metrics)) for each in (curve, reference))
    target = RunTarget("m", -threshold, maximize=False)
    negative = predict_final_metric(curve.before(40), 40, target, EPOCHS, [reference])
    assert (negative.metric, negative.low, negative.high) == (-found.metric, -found.high, -found.low)
    assert (negative.reach_probability, negative.is_plateau) == (found.reach_probability, found.is_plateau)
