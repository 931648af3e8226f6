"""Rounds a relaxed schedule to plans, in several variants (docs/internals/frequency.md)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency._rounding import Pipeline
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import SAME_TIME, Plan

# Above this number of operations, only one variant is used.
MANY_OPERATIONS = 10_000
# Paths through slowed operations stay below the minimum time by this fraction, so that rounding errors of
# sums never exceed it.
MARGIN = 1e-9
# Relative tolerance within which durations meet the minimum time.
TIME_TOLERANCE = 1e-12
# Bisection steps of the scale of durations.
BISECTIONS = 14


class _RoundingVariant(NamedTuple):
    """A variant of rounding."""

    pipeline: Pipeline
    options: npt.NDArray[np.int64]
    option_of: npt.NDArray[np.int64]


class Roundings:
    """Rounds relaxed schedules of one problem.

    Operations are rounded by their deadlines, in topological order. Up to ``MANY_OPERATIONS`` operations,
    three variants give further plans: with the corners of the lower hull as the only options, which
    accumulates slack until it suffices for a corner; and both in reversed time, which uses slack late
    instead of early. No variant is best everywhere.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        few = problem.graph.operations <= MANY_OPERATIONS
        self._variants = (
            [_variant(problem, *chosen) for chosen in ((True, False), (False, True), (True, True))] if few else []
        )

    def plans(self, durations: Floats) -> Iterator[Plan]:
        """Plans that take no longer than the longest path of the durations, shape (operations,)."""
        pipeline = self.problem.pipeline
        deadline = pipeline.longest_path(durations)
        choices = np.empty(self.problem.graph.operations, dtype=np.int16)
        yield Plan(choices, *pipeline.round(durations, deadline, choices))
        for variant in self._variants:
            found = np.empty(self.problem.graph.operations, dtype=np.int16)
            variant.pipeline.round(durations, deadline, found)
            choices = variant.option_of[variant.options + found].astype(np.int16)
            yield Plan(choices, *pipeline.reclaim(choices))


def _variant(problem: Problem, only_corners: bool, backwards: bool) -> _RoundingVariant:
    graph = problem.graph
    indices = [found.corners if only_corners else np.arange(len(found.times_seconds)) for found in problem.options]
    first_options = np.cumsum([0, *map(len, indices)])
    pipeline = Pipeline(
        befores=graph.afters if backwards else graph.befores,
        afters=graph.befores if backwards else graph.afters,
        kind_of=graph.kind_of,
        first_options=first_options.astype(np.int32),
        times=np.concatenate(
            [found.times_seconds[places] for found, places in zip(problem.options, indices, strict=True)]
        ),
        costs=np.concatenate(
            [found.effective_joules[places] for found, places in zip(problem.options, indices, strict=True)]
        ),
    )
    return _RoundingVariant(pipeline, first_options[graph.kind_of], np.concatenate(indices))


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
