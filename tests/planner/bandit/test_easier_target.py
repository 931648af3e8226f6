"""Attempts that ended at an easier target tell the arms apart; their arms have had no chance yet."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.feasible_arms import tried_arms
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome, retargeted

Context = Callable[..., DecisionContext]
SIZES = (16, 32, 64, 128)
TARGET = RunTarget("accuracy", 0.95)
REACHED, EXHAUSTED = Outcome.REACHED, Outcome.EXHAUSTED
# Batch size 32 was the cheapest for the target 0.9.
RUNS = [(64, 900.0, REACHED), (32, 500.0, REACHED), (16, 800.0, REACHED), *[(32, 500.0, REACHED)] * 5]


def converted(observation: Observation) -> Observation:
    epochs = observation.epochs
    curve = MetricCurve((epochs / 2, epochs), (0.7, 0.9))
    found = retargeted(replace(observation, curve=curve, other_target=True), TARGET)
    assert found is not None
    return found


@pytest.fixture
def context(context_after: Context) -> DecisionContext:
    given = context_after(SIZES, 64, RUNS, max_epochs=200, target=TARGET)
    return replace(given, observations=tuple(converted(each) for each in given.observations))


def test_the_cheapest_arm_at_the_easier_target_runs_first_with_retries(context: DecisionContext) -> None:
    decision = ThompsonSamplingPolicy().decide(context)
    assert (decision.batch_size, decision.last_attempt) == (32, False)
    assert decision.stop_cost_joules is None


def test_an_easier_target_is_no_chance_to_reach_the_present_one(context: DecisionContext) -> None:
    assert tried_arms(context) == set()
    exhausted = replace(context.observations[-1], recurrence=99, outcome=EXHAUSTED, epochs=200, easier_target=False)
    assert tried_arms(replace(context, observations=(*context.observations, exhausted))) == {SIZES.index(32)}


def test_one_run_at_the_present_target_gives_the_level_of_all_arms(context: DecisionContext) -> None:
    """The runs at the easier target order the arms, and a run with four times the epochs raises all of them."""

    def cost_of(size: int) -> float:
        policy = ThompsonSamplingPolicy()
        reached = replace(context.observations[1], recurrence=8, outcome=REACHED, epochs=200, easier_target=False)
        later = replace(context, recurrence=9, observations=(*context.observations, reached))
        arm = next(each for each in policy.decide(later).arms if each.batch_size == size)
        assert arm.mean_cost_joules is not None
        return arm.mean_cost_joules

    assert cost_of(64) > 2 * 900
    assert cost_of(32) < min(cost_of(64), cost_of(16))


def test_a_job_with_runs_at_an_easier_target_only_tries_other_arms_when_they_miss(context: DecisionContext) -> None:
    observations, order = context.observations, []
    for attempt in range(4):
        now = replace(context, recurrence=8, attempt=attempt, observations=observations)
        decision = ThompsonSamplingPolicy().decide(now)
        order.append(decision.batch_size)
        missed = Observation(8, attempt, decision.batch_size, EXHAUSTED, 200.0, 2000.0, 20.0, 200.0)
        observations = (*observations, missed)
    assert sorted(order) == list(SIZES)
