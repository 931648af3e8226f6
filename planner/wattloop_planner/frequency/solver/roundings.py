"""Rounds a relaxed schedule to plans, in several variants (docs/frequency.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency._rounding import Pipeline
from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import Plan

# Above this number of operations, only one variant is used.
MANY_OPERATIONS = 10_000


class _RoundingVariant(NamedTuple):
    """A variant of rounding.

    Attributes:
        pipeline: The pipeline in which operations are rounded.
        options: Offset of each operation's options in ``option_of``, shape (operations,).
        option_of: Index of each option of ``pipeline`` among the useful options.
    """

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
