"""Which limit is measured next, and when the choice is certain."""

import csv
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.power_profiles.synthetic_training import SyntheticTraining
from support.test_sets.parameters import exhaustive_after
from wattloop.errors import UsageError
from wattloop.power.selectors import Cost, Energy, MaxSlowdown, MeasuredLimit, Selector, Time, comparison
from wattloop.power.sequential_design import (
    MAX_LIMITS,
    Mode,
    Requirements,
    SequentialDesign,
    first_pass,
    limits_to_measure,
)

TRACES = Path(__file__).parents[2] / "data" / "zeus-traces"
SELECTORS: tuple[Selector, ...] = (Energy(), Time(), Cost(0.5), MaxSlowdown(1.1))


def measured_profiles() -> list[list[MeasuredLimit]]:
    """Some of the measured profiles of the traces: four of each GPU."""
    profiles: dict[tuple[str, ...], list[MeasuredLimit]] = {}
    for file in ("summary_power_a40.csv", "summary_power_v100.csv"):
        with (TRACES / file).open() as stream:
            for row in csv.DictReader(stream):
                key = (file, *(row[name] for name in ("dataset", "network", "batch_size", "optimizer")))
                seconds = float(row["time_per_epoch"])
                energy = seconds * float(row["average_power"])
                profiles.setdefault(key, []).append(MeasuredLimit(float(row["power_limit"]), energy, seconds))
    return [profile for profile in profiles.values() if len(profile) >= 7][::10]


PROFILES = measured_profiles()


def design_for(truth: Sequence[MeasuredLimit], selector: Selector, mode: Mode = "Measured") -> SequentialDesign:
    return SequentialDesign([each.power_limit_watts for each in truth], 1, selector, mode)


RANGES = st.tuples(st.integers(50, 400), st.integers(0, 800)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(RANGES)
def test_limits_descend_from_the_maximum_in_equal_steps_within_the_range(bounds: tuple[int, int]) -> None:
    lowest, highest = bounds
    limits = limits_to_measure(lowest, highest)
    assert limits[0] == highest
    assert len(limits) <= MAX_LIMITS
    assert all(lowest <= limit <= highest for limit in limits)
    steps = {before - after for before, after in itertools.pairwise(limits)}
    assert len(steps) <= 1
    assert all(step % 25 == 0 for step in steps)


@given(st.integers(1, 20), st.booleans())
def test_the_first_pass_begins_at_the_maximum_and_has_no_limit_twice(limits: int, fitted: bool) -> None:
    order = first_pass(limits, fitted)
    assert order[0] == 0
    assert len(set(order)) == len(order)
    if fitted and limits > 4:
        assert len(order) == 4
        assert limits - 1 in order
    else:
        assert sorted(order) == list(range(limits))


@pytest.mark.parametrize("limits", [7, 9, 13])
def test_the_order_of_the_first_pass_does_not_resemble_a_trend(limits: int) -> None:
    order = first_pass(limits, False)
    mean = (limits - 1) / 2
    covariance = sum((place - mean) * (limit - mean) for place, limit in enumerate(order))
    variance = sum((place - mean) ** 2 for place in range(limits))
    assert abs(covariance / variance) < 0.6


@pytest.mark.parametrize(
    ("selector", "mode"),
    exhaustive_after(
        [
            (MaxSlowdown(1.1), "Measured"),
            (Energy(), "Fitted"),
            (MaxSlowdown(1.1), "Fitted"),
            (Energy(), "Measured"),
            *((selector, mode) for selector in (Time(), Cost(0.5)) for mode in ("Measured", "Fitted")),
        ],
        usual=2,
    ),
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_certain_choice_on_measured_profiles_is_within_the_margin(selector: Selector, mode: Mode) -> None:
    worse = 0
    for number, truth in enumerate(PROFILES[::2]):
        design = SyntheticTraining(truth, noise=0.01, seed=number).carry_out(design_for(truth, selector, mode))
        assert design.reason == "Certain"
        assert design.choice.doubt <= design.requirements.max_doubt
        chosen = next(each for each in truth if each.power_limit_watts == design.choice.power_limit_watts)
        worse += comparison(selector)(chosen, truth, design.requirements.margin)
    # Each may be wrong with a probability of 5 %: more than one of these is unlikely.
    assert worse <= 1


@pytest.mark.parametrize("mode", exhaustive_after(["Measured", "Fitted"]))
def test_a_limit_that_may_break_the_bound_is_seldom_chosen(mode: Mode) -> None:
    # 300 W is too slow by half a percent: within the margin, and within the doubt about one window.
    seconds = {400.0: 10.0, 350.0: 10.3, 300.0: 11.055, 250.0: 12.4, 200.0: 14.6}
    truth = [MeasuredLimit(limit, limit * each * 0.95, each) for limit, each in seconds.items()]
    chosen = []
    for seed in range(8):
        design = design_for(truth, MaxSlowdown(1.1), mode)
        SyntheticTraining(truth, noise=0.01, seed=seed).carry_out(design)
        chosen.append(design.limit_watts)
    # The most probable profile alone would choose it in most of the runs.
    assert set(chosen) <= {300.0, 350.0}
    assert chosen.count(300.0) <= 2


def test_more_noise_needs_more_windows() -> None:
    truth = PROFILES[0]
    quiet, noisy = (
        SyntheticTraining(truth, noise=noise, seed=1).carry_out(design_for(truth, Cost(0.5))) for noise in (0.002, 0.02)
    )
    assert len(noisy.windows) > len(quiet.windows)


def throttled_profile(ripple: float) -> list[MeasuredLimit]:
    """A GPU that its limit always slows, with a minimum of energy inside; a ripple is no smooth curve."""
    profile = []
    for place in range(13):
        limit = 400.0 - 25.0 * place
        seconds = (0.5 + 0.5 * (250.0 / limit) ** 3) * math.exp(ripple * (-1) ** place)
        profile.append(MeasuredLimit(limit, 0.99 * limit * seconds, seconds))
    return profile


def test_fitted_needs_fewer_limits_when_the_curve_is_smooth() -> None:
    truth = throttled_profile(ripple=0.0)
    design = SyntheticTraining(truth, noise=0.005, seed=1).carry_out(design_for(truth, Energy(), "Fitted"))
    measured = {window.power_limit_watts for window in design.windows}
    assert len(measured) < len(truth)
    assert design.limit_watts in measured
    chosen = next(each for each in truth if each.power_limit_watts == design.limit_watts)
    assert not comparison(Energy())(chosen, truth, 0.02)


def test_a_curve_that_is_not_smooth_makes_fitted_measure_more_limits() -> None:
    def limits_measured(ripple: float) -> int:
        truth = throttled_profile(ripple)
        design = SyntheticTraining(truth, noise=0.005, seed=1).carry_out(design_for(truth, Energy(), "Fitted"))
        return len({window.power_limit_watts for window in design.windows})

    assert limits_measured(0.1) > limits_measured(0.0)


def test_the_intervals_contain_the_truth() -> None:
    inside = total = 0
    for number, truth in enumerate(PROFILES):
        design = SyntheticTraining(truth, noise=0.01, seed=number).carry_out(design_for(truth, Cost(0.5)))
        estimate = design.choice.estimate
        by_limit = {each.power_limit_watts: each for each in truth}
        for place, limit in enumerate(estimate.limits_watts):
            low, high = estimate.energy_interval(place)
            inside += low <= by_limit[limit].energy_joules <= high
            total += 1
    assert inside >= 0.9 * total


def test_a_drift_does_not_move_the_choice() -> None:
    # All limits cost the same, and each window costs 0.5 % more than the one before: an order from the
    # maximum down would find the minimum 4 % more expensive.
    truth = [MeasuredLimit(float(limit), 100.0, 1.0) for limit in range(100, 325, 25)]
    training = SyntheticTraining(truth, noise=0.002, seed=2, drift_per_window=0.005)
    design = training.carry_out(design_for(truth, Energy()))
    log_energy = design.choice.estimate.log_energy
    assert max(log_energy) - min(log_energy) < 0.02


def test_the_budget_ends_the_measurement_and_says_so() -> None:
    truth = [MeasuredLimit(limit, 100.0 + limit / 1e3, 1.0) for limit in range(100, 325, 25)]
    requirements = Requirements(margin=0.0, max_doubt=0.01, budget_seconds=90.0)
    design = SequentialDesign([each.power_limit_watts for each in truth], 1, Energy(), "Measured", requirements)
    SyntheticTraining(truth, noise=0.02, seed=7).carry_out(design)
    assert design.reason == "BudgetSpent"
    assert 90.0 <= sum(window.time_seconds for window in design.windows) < 100.0


def test_one_limit_is_certain_after_one_window() -> None:
    truth = [MeasuredLimit(250.0, 100.0, 1.0)]
    design = SyntheticTraining(truth, noise=0.05, seed=0).carry_out(design_for(truth, Cost(0.5)))
    assert (design.reason, design.limit_watts, len(design.windows)) == ("Certain", 250.0, 1)


# An estimate with many windows takes a tenth of a second.
@settings(deadline=None, max_examples=8)
@given(
    st.lists(st.tuples(st.floats(1.0, 1e4), st.floats(1e-3, 1e3)), min_size=1, max_size=9),
    st.sampled_from(["Measured", "Fitted"]),
    st.sampled_from(SELECTORS),
    st.floats(0.0, 0.3),
)
def test_any_profile_ends_within_the_budget_with_finite_figures(
    costs: list[tuple[float, float]], mode: Mode, selector: Selector, noise: float
) -> None:
    truth = [MeasuredLimit(400.0 - 25.0 * place, energy, time) for place, (energy, time) in enumerate(costs)]
    requirements = Requirements(budget_seconds=60.0)
    design = SequentialDesign([each.power_limit_watts for each in truth], 1, selector, mode, requirements)
    SyntheticTraining(truth, noise=noise, seed=1).carry_out(design)
    assert design.choice is not None
    assert design.limit_watts in design.limits_watts
    for place in range(len(truth)):
        low, high = design.choice.estimate.energy_interval(place)
        assert 0 < low <= high < math.inf


class _Middle:
    """A user's selector: the median time."""

    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        return sorted(measurements, key=lambda each: each.time_seconds)[len(measurements) // 2]


class _Invents:
    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        return MeasuredLimit(1.0, 1.0, 1.0)


def test_any_object_with_select_is_a_selector() -> None:
    truth = [MeasuredLimit(300.0 - 50 * place, 100.0 + 30 * place, 1.0 + 0.3 * place) for place in range(4)]
    design = SyntheticTraining(truth, noise=0.01, seed=0).carry_out(design_for(truth, _Middle()))
    assert (design.reason, design.limit_watts) == ("Certain", 200.0)


def test_a_selector_that_returns_something_else_is_named() -> None:
    design = design_for([MeasuredLimit(100.0, 1.0, 1.0)], _Invents())
    training = SyntheticTraining([MeasuredLimit(100.0, 1.0, 1.0)], noise=0.0, seed=0)
    with pytest.raises(UsageError, match="_Invents returned"):
        design.add(training.window(100.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"margin": -0.1}, "margin"), ({"max_doubt": 0.0}, "max_doubt"), ({"budget_seconds": math.inf}, "budget_seconds")],
)
def test_requirements_out_of_range_are_rejected(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Requirements(**arguments)
