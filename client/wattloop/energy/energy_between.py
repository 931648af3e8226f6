"""Energy until a moment, interpolated between the edges of a counter."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from wattloop.energy.edges import Edge
from wattloop.energy.energy_estimate import Energy


def energy_at(edges: Sequence[Edge], moment: float) -> Energy:
    """Energy used until a moment, counted from the zero of the counter.

    Args:
        edges: Edges of the counter, oldest first; at least two, at distinct times.
        moment: Time in seconds, on the clock of the readings.

    Returns:
        The energy. Its bound holds between the second and the last but one edge, provided that power changed at most
        once between two edges.

    Example:
        >>> energy_at([Edge(k, k, 10_000 * k) for k in range(5)], 2.5)
        Energy(joules=25.0, uncertainty_joules=0.0)
    """
    after = bisect.bisect_right(edges, moment, key=lambda edge: edge.time_seconds)
    index = min(max(after, 1), len(edges) - 1)
    before, behind = edges[index - 1], edges[index]
    power = _power(before, behind)
    joules = before.energy_millijoules / 1000 + power * (moment - before.time_seconds)
    timing = power * max(before.uncertainty_seconds, behind.uncertainty_seconds)
    return Energy(joules, timing + _invisible_change(edges, index, moment))


def _invisible_change(edges: Sequence[Edge], index: int, moment: float) -> float:
    """The largest error, in joules, from a change of power within a step, which the counter does not show."""
    before, behind = edges[index - 1], edges[index]
    power = _power(before, behind)
    length = behind.time_seconds - before.time_seconds
    neighbours = [power]
    if index >= 2:
        neighbours.append(_power(edges[index - 2], before))
    if index + 1 < len(edges):
        neighbours.append(_power(behind, edges[index + 1]))
    swing = max(neighbours) - min(neighbours)
    outside = max(before.time_seconds - moment, moment - behind.time_seconds, 0.0)
    if outside > 0:
        # There are no readings yet: power may have fallen to zero or doubled.
        return power * outside + swing * length / 4
    # A jump by `swing` inside a step bends the line by at most a quarter of swing times length.
    return swing * length / 4


def _power(before: Edge, behind: Edge) -> float:
    return (behind.energy_millijoules - before.energy_millijoules) / 1000 / (behind.time_seconds - before.time_seconds)
