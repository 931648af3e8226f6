"""Joins the steps of a counter with the activities between them, as rows of the regression."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from wattloop.energy.energy_timeline import MAX_GAP_SECONDS, CounterEdge
from wattloop.pipeline.activities import Activity, ActivityHistory
from wattloop.pipeline.energy_regression import RegressionRow, TimingError


def rows(edges: Sequence[CounterEdge], history: ActivityHistory) -> Iterator[RegressionRow]:
    """The rows between consecutive steps whose time has known activities throughout.

    Args:
        edges: Steps in order of time.
        history: The activities.
    """
    for begin, end in itertools.pairwise(edges):
        length = end.seconds - begin.seconds
        if begin.epoch != end.epoch or end.number != begin.number + 1 or not 0 < length < MAX_GAP_SECONDS:
            continue
        seconds = history.seconds_between(begin.seconds, end.seconds)
        if seconds is not None:
            yield RegressionRow(end.joules - begin.joules, seconds, _timing_errors(begin, end, history))


def _timing_errors(begin: CounterEdge, end: CounterEdge, history: ActivityHistory) -> list[TimingError]:
    """How errors of the times of the two steps change the row's seconds.

    The steps of a periodic counter have the same error, so that a row is moved as a whole.
    """
    before, after = history.at(begin.seconds), history.at(end.seconds)
    if begin.periodic and end.periodic:
        if before is None or after is None or before == after:
            return []
        return [TimingError(max(begin.deviation_seconds, end.deviation_seconds), {before: -1.0, after: 1.0})]
    return [
        TimingError(edge.deviation_seconds, direction)
        for edge, direction in ((begin, _one(before, -1.0)), (end, _one(after, 1.0)))
        if direction
    ]


def _one(activity: Activity | None, change: float) -> dict[Activity, float]:
    return {} if activity is None else {activity: change}
