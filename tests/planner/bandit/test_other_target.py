"""Observations with another target give the cost of an epoch and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from wattloop_planner.bandit.named_policies import FixedPolicy
from wattloop_planner.bandit.policy import Decision, DecisionContext, Policy
from wattloop_planner.bandit.posterior_cache import PosteriorCache
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.bandit.zeus_policy import ZeusPolicy
from wattloop_planner.observations import Outcome
from wattloop_research.simulation.policies import GridPolicy

Context = Callable[..., DecisionContext]
SIZES = (16, 32, 64, 128)
RUNS = [(64, 900.0, Outcome.REACHED), (32, 700.0, Outcome.REACHED), (16, 800.0, Outcome.EXHAUSTED)]


def with_other_target(context: DecisionContext) -> DecisionContext:
    return replace(context, observations=tuple(replace(each, other_target=True) for each in context.observations))


@pytest.mark.parametrize("runs", [RUNS, [(64, 900.0, Outcome.EXHAUSTED)] * 4])
@pytest.mark.parametrize("policy", [ThompsonSamplingPolicy(), ZeusPolicy(), GridPolicy(), FixedPolicy()])
def test_a_policy_decides_as_for_a_new_job(policy: Policy, context_after: Context, runs: list[Any]) -> None:
    context = with_other_target(context_after(SIZES, 64, runs, max_epochs=100))
    assert policy.decide(context) == policy.decide(replace(context, observations=()))


@pytest.mark.parametrize("policy", [ThompsonSamplingPolicy(), ZeusPolicy(), GridPolicy()])
def test_crashes_count_regardless_of_the_target_and_a_run_ends_their_row(
    policy: Policy, context_after: Context
) -> None:
    crash = (64, 1.0, Outcome.CRASHED)
    context = context_after(SIZES, 64, [crash, crash, RUNS[0], crash])
    seen = tuple(replace(each, other_target=each.outcome is not Outcome.CRASHED) for each in context.observations)
    assert policy.decide(replace(context, observations=seen)).batch_size == 64
    context = context_after(SIZES, 64, [RUNS[0], crash, crash, crash])
    seen = tuple(replace(each, other_target=each.outcome is not Outcome.CRASHED) for each in context.observations)
    assert policy.decide(replace(context, observations=seen)).batch_size != 64


def test_epoch_costs_of_another_target_are_kept(context_after: Context) -> None:
    def epoch_costs(context: DecisionContext) -> Any:
        posterior = PosteriorCache().posterior(context)
        return posterior.epoch_costs.posterior("")

    context = context_after(SIZES, 64, RUNS)
    same, other = epoch_costs(context), epoch_costs(with_other_target(context))
    assert (same.mean == other.mean).all()
    assert (same.covariance == other.covariance).all()


def test_a_window_counts_only_observations_that_give_epochs(context_after: Context) -> None:
    context = context_after(SIZES, 64, [*RUNS, *RUNS, (32, 1.0, Outcome.CRASHED)])
    first, last = context.observations[:3], tuple(replace(each, other_target=True) for each in context.observations[3:])
    context = replace(context, observations=first + last)

    def decide(window: int, context: DecisionContext) -> Decision:
        return ThompsonSamplingPolicy(window=window).decide(context)

    assert decide(3, context) == decide(0, context)
    assert [arm.observations for arm in decide(3, context).arms] == [0, 1, 1, 0]
    assert [arm.observations for arm in decide(2, context).arms] == [0, 1, 0, 0]


def test_one_run_of_the_present_target_makes_its_arm_the_incumbent(context_after: Context) -> None:
    context = with_other_target(context_after(SIZES, 64, RUNS))
    present = replace(context.observations[0], recurrence=3, other_target=False)
    decision = ThompsonSamplingPolicy().decide(replace(context, observations=(*context.observations, present)))
    # The other sizes' runs are not counted, but make their costs of an epoch known.
    assert [arm.observations for arm in decision.arms] == [0, 0, 1, 0]
