"""The fastest plan: exactly the minimum time that the options allow, at low energy (docs/frequency.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import SAME_TIME, Plan

# Paths through slowed operations stay below the minimum time by this fraction, so that rounding errors of
# sums never exceed it.
MARGIN = 1e-9
# Relative tolerance within which durations meet the minimum time.
TIME_TOLERANCE = 1e-12
# Bisection steps of the scale of durations.
BISECTIONS = 14


def min_time_seconds(problem: Problem) -> float:
    """Time of the iteration with every operation at its fastest option: the minimum over all plans."""
    return problem.pipeline.realise(problem.fastest)[0]


def fastest_plan(problem: Problem, durations: Floats) -> Plan:
    """A plan of exactly the minimum time that is close to given durations.

    The durations are interpolated towards the fastest options until they meet the minimum time, and then
    rounded. An operation is slowed only if every path through it stays below the minimum time. All other
    paths consist of fastest options, so the longest path equals the minimum time bit for bit.

    Args:
        problem: The pipeline.
        durations: Durations in seconds, not below those of the fastest options, shape (operations,). Their
            longest path may exceed the minimum time.
    """
    pipeline = problem.pipeline
    deadline = min_time_seconds(problem) * (1 - MARGIN)
    choices = np.empty(problem.graph.operations, dtype=np.int16)
    pipeline.fill(_shortened(problem, durations), deadline, choices)
    # A second pass with the plan's own durations uses the remaining slack within the same deadline.
    return Plan(choices, *pipeline.fill(problem.durations_of(choices), deadline, choices))


def _shortened(problem: Problem, durations: Floats) -> Floats:
    """The durations, interpolated towards the fastest options so that they meet the minimum time."""
    fastest = problem.durations_of(problem.fastest)
    limit = min_time_seconds(problem) * (1 + TIME_TOLERANCE)
    if problem.pipeline.longest_path(durations) <= limit:
        return durations
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        share = (low + high) / 2
        if problem.pipeline.longest_path(fastest + share * (durations - fastest)) <= limit:
            low = share
        else:
            high = share
    return fastest + low * (durations - fastest)


def with_exact_min_time(problem: Problem, plans: Sequence[Plan]) -> list[Plan]:
    """The plans, except those that exceed the minimum time only by rounding errors."""
    min_time = min_time_seconds(problem)
    return [plan for plan in plans if plan.time_seconds == min_time or plan.time_seconds > min_time * (1 + SAME_TIME)]
