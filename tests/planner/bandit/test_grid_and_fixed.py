from collections.abc import Callable

import pytest

from wattloop.errors import UsageError
from wattloop_planner.bandit.named_policies import FixedPolicy
from wattloop_planner.bandit.policy import ChoiceKind, DecisionContext, NoFeasibleArmError
from wattloop_planner.observations import Outcome
from wattloop_research.simulation.policies import POLICIES, GridPolicy, policy_named

CRASHED, REACHED, STOPPED = Outcome.CRASHED, Outcome.REACHED, Outcome.STOPPED
ContextAfter = Callable[..., DecisionContext]


def test_grid_tries_the_default_then_the_rest_then_runs_the_cheapest(context_after: ContextAfter) -> None:
    costs = {8: 12.0, 16: 10.0, 32: 9.0}
    runs = []
    for _ in range(5):
        decision = GridPolicy().decide(context_after((8, 16, 32), 16, runs))
        runs.append((decision.batch_size, costs[decision.batch_size], REACHED))
    assert [size for size, *_ in runs] == [16, 8, 32, 32, 32]
    assert GridPolicy().decide(context_after((8, 16, 32), 16, runs)).kind is ChoiceKind.INCUMBENT


def test_grid_stops_a_trial_at_twice_the_lowest_cost_and_excludes_it(context_after: ContextAfter) -> None:
    decision = GridPolicy().decide(context_after((8, 16), 16, [(16, 10, REACHED)]))
    assert (decision.batch_size, decision.stop_cost_joules) == (8, 20)
    after = GridPolicy().decide(context_after((8, 16), 16, [(16, 10, REACHED), (8, 20, STOPPED)], attempt=1))
    assert (after.batch_size, after.stop_cost_joules) == (16, None)


def test_default_always_runs_the_default_without_a_stop(context_after: ContextAfter) -> None:
    decision = FixedPolicy().decide(context_after((8, 16), 16, [(16, 10, REACHED), (8, 1, REACHED)]))
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (16, ChoiceKind.DEFAULT, None)


def test_a_default_that_crashes_repeatedly_is_an_error_with_a_remedy(context_after: ContextAfter) -> None:
    with pytest.raises(NoFeasibleArmError, match="fix the training, or set another default"):
        FixedPolicy().decide(context_after((8, 16), 16, [(16, 0, CRASHED)] * 3))


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_runs_an_arm_that_crashed_three_times_in_a_row(context_after: ContextAfter, name: str) -> None:
    crashes = [(8, 0, CRASHED)] * 3
    assert policy_named(name).decide(context_after((8, 16, 32), 16, [(16, 10, REACHED), *crashes])).batch_size != 8


@pytest.mark.parametrize("name", POLICIES)
def test_a_default_that_is_not_offered_is_replaced_by_its_nearest_neighbour(
    context_after: ContextAfter, name: str
) -> None:
    assert policy_named(name).decide(context_after((8, 16, 64), 128)).batch_size == 64
    assert policy_named(name).decide(context_after((8, 16, 64), 128, [(64, 10, REACHED)])).batch_size in {8, 16, 64}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_reports_that_no_arm_is_left(context_after: ContextAfter, name: str) -> None:
    with pytest.raises(NoFeasibleArmError):
        policy_named(name).decide(context_after((8, 16), 16, [(8, 0, CRASHED), (16, 0, CRASHED)] * 3))


@pytest.mark.parametrize("name", POLICIES)
def test_a_success_resets_the_crashes_of_an_arm(context_after: ContextAfter, name: str) -> None:
    runs = [(16, 0, CRASHED), (16, 0, CRASHED), (16, 10, REACHED), (16, 0, CRASHED), (16, 0, CRASHED)]
    assert policy_named(name).decide(context_after((16,), 16, runs)).batch_size == 16


def test_an_unknown_policy_or_setting_is_rejected_with_the_valid_ones() -> None:
    with pytest.raises(UsageError, match="'greedy'; the policies are: thompsonSampling, zeus"):
        policy_named("greedy")
    with pytest.raises(UsageError, match="window"):
        policy_named("grid", window=3)
