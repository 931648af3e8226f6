"""Curves that are of no use, or mislead, do no harm: 120 synthetic jobs with and without their curves."""

from functools import cache
from statistics import fmean

import pytest

from support.synthetic_jobs import KINDS, synthetic_scenario
from support.test_sets.parameters import exhaustive_after
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_research.simulation.overlapping_recurrences import simulate

JOBS_PER_KIND = 15
MISLEADING_FIRST = sorted(KINDS, key=lambda kind: kind not in {"falls", "rises with epochs, not progress"})


def total_cost(kind: str, seed: int, *, with_curves: bool) -> float:
    scenario = synthetic_scenario(KINDS[kind], seed, with_curves=with_curves)
    attempts = simulate(scenario, ThompsonSamplingPolicy(describe_arms=False), seed)
    return sum(attempt.result.cost_joules for attempt in attempts)


@cache
def cost_without_curves(seed: int) -> float:
    """The cost of a job that ignores its curves, the same for every kind of curve."""
    return total_cost("constant", seed, with_curves=False)


@pytest.mark.parametrize("kind", exhaustive_after(MISLEADING_FIRST, usual=2))
def test_misleading_curves_raise_the_cost_by_at_most_two_per_cent(kind: str) -> None:
    ratios = [total_cost(kind, seed, with_curves=True) / cost_without_curves(seed) for seed in range(JOBS_PER_KIND)]
    assert fmean(ratios) <= 1.02
