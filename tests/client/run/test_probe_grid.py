"""The grid of a probe, the order of its trials, their cost and their bounds."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.energy.cost import CostModel
from wattloop.errors import UsageError
from wattloop.run.probe_grid import ProbeCost, ProbedConfiguration, ProbePlan, Trial, cheapest, grid, left_out

MODEL = CostModel(0.5, 400.0)
PLAN = ProbePlan(at=(0.5,), batch_sizes=(16, 32, 64), parameters={"dropout": (0.1, 0.5)}, power_limits_watts=(300, 200))
IN_FORCE = ProbedConfiguration(32, (("dropout", "0.2"),), 400.0)


def test_the_grid_has_each_combination_once_with_those_of_the_values_in_force() -> None:
    found = grid(PLAN, IN_FORCE, (300, 200))
    assert len(found) == len(set(found)) == 3 * 3 * 3
    assert {each.batch_size for each in found} == {16, 32, 64}
    assert {dict(each.parameters)["dropout"] for each in found} == {"0.1", "0.2", "0.5"}
    assert {each.power_limit_watts for each in found} == {400.0, 300, 200}


def test_what_is_in_force_comes_first_then_what_differs_in_one_value_then_in_more() -> None:
    found = grid(PLAN, IN_FORCE, (300, 200))
    assert found[0] == IN_FORCE
    distances = [each.differences(IN_FORCE) for each in found]
    assert distances == sorted(distances)
    assert distances.count(1) == 2 + 2 + 2


@pytest.mark.parametrize(
    "trial", [(None, None, -1.0), (10.0, 1.0, None), (10.0, 1.0, 0.0), (10.0, 1.0, 0.5), (0.0, 1.0, -1.0)]
)
def test_a_trial_without_progress_or_a_measurement_is_never_chosen(
    trial: tuple[float | None, float | None, float | None],
) -> None:
    useless = Trial(IN_FORCE, *trial)
    assert math.isinf(useless.cost_joules(MODEL))
    assert cheapest([useless], MODEL) is None
    other = Trial(ProbedConfiguration(16), 1e9, 1e9, -1e-9)
    assert cheapest([useless, other], MODEL) is other


def test_the_cost_of_a_unit_of_progress_decides_and_of_equal_costs_the_first() -> None:
    slow = Trial(ProbedConfiguration(16), 1000.0, 10.0, -0.5)
    fast = Trial(ProbedConfiguration(64), 2000.0, 10.0, -1.0)
    assert cheapest([slow, fast], MODEL) is fast
    assert cheapest([slow, Trial(ProbedConfiguration(32), 1000.0, 10.0, -0.5)], MODEL) is slow
    # Warm-up steps make progress too, which the measured ones must not get for nothing.
    warmed = Trial(ProbedConfiguration(64), 2000.0, 10.0, -1.0, steps_per_measured=2.0)
    assert cheapest([slow, warmed], MODEL) is slow


@given(seconds=st.lists(st.floats(0.1, 100.0), max_size=8), elapsed=st.floats(0.0, 1e5), percent=st.floats(0.0, 100.0))
def test_trials_that_use_what_is_left_stay_within_their_share(
    seconds: list[float], elapsed: float, percent: float
) -> None:
    cost, training = ProbeCost(), elapsed
    for each in seconds:
        if each > cost.seconds_left(training + cost.time_seconds, percent):
            break
        cost = cost.with_trial(1.0, each)
    assert cost.time_seconds <= percent / 100 * training * (1 + 1e-9)


def test_a_counter_that_falls_takes_nothing_from_the_cost() -> None:
    assert ProbeCost(1, 5.0, 2.0, 2.0).with_trial(-1.0, -1.0) == ProbeCost(2, 5.0, 2.0, 2.0)


def test_limits_that_are_left_out_are_named_with_what_may_be_held() -> None:
    assert left_out(PLAN, (300, 200), (100.0, 400.0)) == []
    assert left_out(PLAN, (300,), (250.0, 400.0)) == [
        "power_limits_watts: 200 W is not tried: 250 to 400 W may be held"
    ]
    assert left_out(PLAN, (), None) == ["power_limits_watts: 300 W, 200 W is not tried: no power limit may be held"]


def test_batch_sizes_that_the_ranks_do_not_divide_are_rounded_down() -> None:
    found = grid(ProbePlan(at=[0.5], batch_sizes=[8, 9, 15, 16]), ProbedConfiguration(8), (), ranks=4)
    assert [each.batch_size for each in found] == [8, 12, 16]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"at": []}, "at has 0 values; give 1 to 16"),
        ({"at": ["0.5"]}, "a value of at is '0.5'; it must be a finite number"),
        ({"at": [math.nan]}, "a value of at is nan; it must be a finite number"),
        ({"at": [0.5, 0.3, 0.5]}, "at has 0.5 twice"),
        ({"batch_sizes": [32, 0]}, "a batch size is 0; it must be a whole number from 1 to"),
        ({"batch_sizes": [32, 32]}, "batch_sizes has 32 twice"),
        ({"power_limits_watts": [300, 20_000]}, "a power limit is 20000; it must be a whole number from 1 to 10000"),
        ({"parameters": {"Dropout": [0.1, 0.2]}}, "parameters has 'Dropout'; it must be a name of spec.parameters"),
        ({"parameters": {"dropout": "0.1"}}, "parameters has '0.1' for dropout; it must be a list of values"),
        ({"parameters": {"dropout": []}}, "parameters, dropout, has 0 values; give 1 to 64"),
        ({"parameters": {"dropout": [0.1, "0.1"]}}, "parameters, dropout, has 0.1 twice"),
        ({"batch_sizes": []}, "have 1 combinations; give 2 to 4096"),
        ({"batch_sizes": range(1, 65), "parameters": {"a": range(64), "b": [1, 2]}}, "have 8192 combinations"),
        ({"steps": 0}, "steps is 0; it must be a whole number from 1 to 100000"),
        ({"warm_up_steps": -1}, "warm_up_steps is -1; it must be a whole number from 0 to"),
        ({"max_trials": 1}, "max_trials is 1; it must be a whole number from 2 to 256"),
        ({"max_time_percent": 0}, "max_time_percent is 0; it must be from 1 to 100"),
    ],
)
def test_a_wrong_plan_says_what_is_right(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ProbePlan(**{"at": [0.5], "batch_sizes": [32, 64], **plan})
