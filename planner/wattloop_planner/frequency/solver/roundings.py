"""Ways to round a relaxed schedule to real plans (docs/frequency.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency._rounding import Pipeline
from wattloop_planner.frequency.pipeline.plans import Plan
from wattloop_planner.frequency.pipeline.problem import Floats, Problem

# Beyond so many operations a schedule is rounded in one way only.
MANY_OPERATIONS = 10_000


class _RoundingVariant(NamedTuple):
    """One way of rounding.

    Attributes:
        pipeline: In which operations are rounded.
        options: For each operation the place of its first option in ``option_of``, shape (operations,).
        option_of: Index among the useful options of each option of ``pipeline``.
    """

    pipeline: Pipeline
    options: npt.NDArray[np.int64]
    option_of: npt.NDArray[np.int64]


class Roundings:
    """Rounds relaxed schedules of one problem.

    Every plan is rounded by deadlines, in topological order. Up to ``MANY_OPERATIONS`` operations three more plans are
    made: with corners of the lower hull as the only options, which keeps slack together until it pays for a whole
    corner; and each of the two in the opposite order of time, where slack is spent late rather than early. None is best
    everywhere.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        few = problem.graph.operations <= MANY_OPERATIONS
        self._others = (
            [_variant(problem, *chosen) for chosen in ((True, False), (False, True), (True, True))] if few else []
        )

    def plans(self, durations: Floats) -> Iterator[Plan]:
        """Plans that take no longer than the durations, of shape (operations,)."""
        pipeline = self.problem.pipeline
        deadline = pipeline.longest_path(durations)
        choices = np.empty(self.problem.graph.operations, dtype=np.int16)
        yield Plan(choices, *pipeline.round(durations, deadline, choices))
        for way in self._others:
            found = np.empty(self.problem.graph.operations, dtype=np.int16)
            way.pipeline.round(durations, deadline, found)
            choices = way.option_of[way.options + found].astype(np.int16)
            yield Plan(choices, *pipeline.reclaim(choices))


def _variant(problem: Problem, only_corners: bool, backwards: bool) -> _RoundingVariant:
    graph = problem.graph
    kept = [found.corners if only_corners else np.arange(len(found.times_seconds)) for found in problem.options]
    first_options = np.cumsum([0, *map(len, kept)])
    pipeline = Pipeline(
        befores=graph.afters if backwards else graph.befores,
        afters=graph.befores if backwards else graph.afters,
        kind_of=graph.kind_of,
        first_options=first_options.astype(np.int32),
        times=np.concatenate(
            [found.times_seconds[places] for found, places in zip(problem.options, kept, strict=True)]
        ),
        costs=np.concatenate(
            [found.effective_joules[places] for found, places in zip(problem.options, kept, strict=True)]
        ),
    )
    return _RoundingVariant(pipeline, first_options[graph.kind_of], np.concatenate(kept))
