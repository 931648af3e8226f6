"""Energy at and between moments, interpolated between the edges of a counter, with what is not known of it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.energy.edges import Edge


@dataclass(frozen=True)
class Energy:
    """An amount of energy.

    Attributes:
        joules: The estimate.
        uncertainty_joules: The truth is within so much of it, where power changed at most once between two edges.
    """

    joules: float
    uncertainty_joules: float


def energy_between(edges: Sequence[Edge], begin_seconds: float, end_seconds: float) -> Energy:
    """The energy used between two moments.

    Beyond the last edge the last step's power goes on: an estimate while a window is open, with an uncertainty to
    match. Before the first edge likewise.

    Args:
        edges: Of the counter, oldest first; at least two.
        begin_seconds: On the clock of the readings.
        end_seconds: Not before the begin.

    Raises:
        ValueError: Fewer than two edges, or an end before the begin.

    Example:
        >>> edges = [Edge(k / 10, k / 10, 10_000 * k) for k in range(5)]
        >>> energy_between(edges, 0.12, 0.17)
        Energy(joules=5.0, uncertainty_joules=0.0)
    """
    if len(edges) < 2:
        raise ValueError(f"{len(edges)} edges of the counter were seen; at least two are needed")
    if end_seconds < begin_seconds:
        raise ValueError("the end is before the begin")
    begin, end = energy_at(edges, begin_seconds), energy_at(edges, end_seconds)
    joules = end.joules - begin.joules
    uncertainty = begin.uncertainty_joules + end.uncertainty_joules
    # A short window within one step can't be wrong by more than the window at the step's uncertain power.
    return Energy(round(joules, 9), round(uncertainty, 9))


def energy_at(edges: Sequence[Edge], moment: float) -> Energy:
    """Energy used until a moment, counted as the counter counts.

    Args:
        edges: Of the counter, oldest first; at least two, no two of one time.
        moment: On the clock of the readings, in seconds.

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
    return Energy(joules, timing + _unseen(edges, index, moment))


def _unseen(edges: Sequence[Edge], index: int, moment: float) -> float:
    """What a change of power within the step, which the counter does not show, can make of the moment."""
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
        # Nothing was seen there yet: power may have fallen to nothing or doubled.
        return power * outside + swing * length / 4
    # A jump by `swing` inside a step bends the line by at most a quarter of swing times step.
    return swing * length / 4


def _power(before: Edge, behind: Edge) -> float:
    return (behind.energy_millijoules - before.energy_millijoules) / 1000 / (behind.time_seconds - before.time_seconds)
