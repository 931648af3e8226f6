"""The fastest plan: exactly the least time that the options allow, with little energy (docs/frequency.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattloop_planner.frequency.pipeline.plans import SAME_TIME, Plan
from wattloop_planner.frequency.pipeline.problem import Floats, Problem

# Paths through an operation that is slowed down are shorter than the least time by this fraction, so that sums of
# rounded numbers never exceed it.
MARGIN = 1e-9
# Durations that exceed the least time by less, relatively, meet it.
MEETS = 1e-12
# Bisections of how far durations are shortened.
HALVINGS = 14


def min_time_seconds(problem: Problem) -> float:
    """Time of the iteration with every operation at its fastest option: no plan takes less."""
    return problem.pipeline.realise(problem.fastest)[0]


def fastest_plan(problem: Problem, durations: Floats) -> Plan:
    """A plan of exactly the least time, by the example of these durations, which may take longer.

    The durations are shortened towards the fastest options' until they meet the least time, and then rounded. An
    operation is slowed down only where every path through it stays below the least time. All other paths consist of
    fastest options, of which the longest takes the least time, bit for bit.

    Args:
        problem: The pipeline.
        durations: In seconds, at least those of the fastest options, shape (operations,).
    """
    pipeline = problem.pipeline
    deadline = min_time_seconds(problem) * (1 - MARGIN)
    choices = np.empty(problem.graph.operations, dtype=np.int16)
    pipeline.fill(_shortened(problem, durations), deadline, choices)
    # Once more by its own durations: what slack is left is given out within the same deadline.
    return Plan(choices, *pipeline.fill(problem.durations_of(choices), deadline, choices))


def _shortened(problem: Problem, durations: Floats) -> Floats:
    """The durations, or those on the straight line from the fastest to them that just meet the least time."""
    fastest = problem.durations_of(problem.fastest)
    limit = min_time_seconds(problem) * (1 + MEETS)
    if problem.pipeline.longest_path(durations) <= limit:
        return durations
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        share = (low + high) / 2
        if problem.pipeline.longest_path(fastest + share * (durations - fastest)) <= limit:
            low = share
        else:
            high = share
    return fastest + low * (durations - fastest)


def with_exact_min_time(problem: Problem, plans: Sequence[Plan]) -> list[Plan]:
    """The plans without those that exceed the least time by no more than the rounding of sums."""
    least = min_time_seconds(problem)
    return [plan for plan in plans if plan.time_seconds == least or plan.time_seconds > least * (1 + SAME_TIME)]
