"""Finds the moments at which an energy counter advanced, from readings of the counter."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

# Number of edges to find a common period in. With more, the drift between the device's clock and the
# system's clock exceeds the precision.
PERIOD_EDGES = 32
MIN_PERIOD_EDGES = 6
TRIED_PERIODS = 32


@dataclass(frozen=True)
class Reading:
    """One call of the counter.

    Attributes:
        begin_seconds: Time just before the call.
        end_seconds: Time just after the call; the value is from a moment in between.
        energy_millijoules: The value of the counter.
    """

    begin_seconds: float
    end_seconds: float
    energy_millijoules: int


@dataclass(frozen=True)
class Edge:
    """A step of the counter.

    Attributes:
        earliest_seconds: Lower bound of the time of the step.
        latest_seconds: Upper bound of the time of the step.
        energy_millijoules: The counter after the step: all energy used until the step.
    """

    earliest_seconds: float
    latest_seconds: float
    energy_millijoules: int

    @property
    def time_seconds(self) -> float:
        """The middle of the interval that contains the step."""
        return (self.earliest_seconds + self.latest_seconds) / 2

    @property
    def uncertainty_seconds(self) -> float:
        """Half of the length of that interval."""
        return (self.latest_seconds - self.earliest_seconds) / 2


class CounterHistory:
    """The edges of one counter, from its readings, in bounded memory.

    Args:
        limit: Maximum number of edges; the oldest are dropped.

    Attributes:
        resets: Number of times that the counter decreased, since the driver was reloaded or the device
            was reset. A reset discards all edges before it: the energy used around it is unknown.

    Example:
        >>> history = CounterHistory()
        >>> for second in range(4):
        ...     history.add(Reading(second, second, 1000 * (second // 2)))
        >>> history.edges()[0].time_seconds
        1.5
    """

    def __init__(self, limit: int = 4096) -> None:
        self._edges: deque[Edge] = deque(maxlen=limit)
        self._last: Reading | None = None
        self.resets = 0

    def add(self, reading: Reading) -> None:
        """Add a reading; readings are in order of time."""
        last = self._last
        self._last = reading
        if last is None or reading.energy_millijoules == last.energy_millijoules:
            return
        if reading.energy_millijoules < last.energy_millijoules:
            self.resets += 1
            self._edges.clear()
            return
        self._edges.append(Edge(last.begin_seconds, reading.end_seconds, reading.energy_millijoules))

    def edges(self) -> list[Edge]:
        """The edges, oldest first, with the last ones narrowed by their period."""
        edges = list(self._edges)
        return edges[:-PERIOD_EDGES] + narrowed(edges[-PERIOD_EDGES:])


def narrowed(edges: Sequence[Edge]) -> list[Edge]:
    """The same edges with narrower intervals, if they have a common period.

    A device advances its counter periodically (an H200's period of 100 ms fits 120 edges to within the
    5 ms of a call). Each edge lies within its own interval. For a given period, all intervals shifted
    onto one another therefore overlap in a part that contains the true edge. The result covers
    these parts for all feasible periods. Without a feasible period the edges are unchanged.

    Example:
        >>> seen = [Edge(k * 0.1 - 0.003 * (k % 3), k * 0.1 + 0.008 - 0.003 * (k % 3), k) for k in range(12)]
        >>> max(edge.uncertainty_seconds for edge in seen) > 0.003 > max(e.uncertainty_seconds for e in narrowed(seen))
        True
    """
    if len(edges) < MIN_PERIOD_EDGES:
        return list(edges)
    gaps = sorted(after.time_seconds - before.time_seconds for before, after in itertools.pairwise(edges))
    median_gap = gaps[len(gaps) // 2]
    counts = [round((edge.time_seconds - edges[0].time_seconds) / median_gap) for edge in edges]
    if len(set(counts)) < len(counts):
        return list(edges)
    feasible = _feasible_periods(counts, edges)
    if not feasible:
        return list(edges)
    # An edge moves by at most this between two tried periods.
    slack = abs(feasible[-1][0] - feasible[0][0]) / TRIED_PERIODS * counts[-1]
    return [
        Edge(
            max(edge.earliest_seconds, min(first + count * period for period, first, _ in feasible) - slack),
            min(edge.latest_seconds, max(last + count * period for period, _, last in feasible) + slack),
            edge.energy_millijoules,
        )
        for count, edge in zip(counts, edges, strict=True)
    ]


def _feasible_periods(counts: Sequence[int], edges: Sequence[Edge]) -> list[tuple[float, float, float]]:
    """The periods that fit all edges, each with the earliest and latest time of edge number 0."""
    numbered = list(zip(counts, edges, strict=True))
    pairs = [(later - sooner, one, other) for (sooner, one), (later, other) in itertools.combinations(numbered, 2)]
    longest = min((other.latest_seconds - one.earliest_seconds) / steps for steps, one, other in pairs)
    shortest = max((other.earliest_seconds - one.latest_seconds) / steps for steps, one, other in pairs)
    if shortest > longest:
        return []
    feasible = []
    for step in range(TRIED_PERIODS + 1):
        period = shortest + (longest - shortest) * step / TRIED_PERIODS
        first = max(edge.earliest_seconds - count * period for count, edge in numbered)
        last = min(edge.latest_seconds - count * period for count, edge in numbered)
        if first <= last:
            feasible.append((period, first, last))
    return feasible
