"""When a counter stepped, from readings of it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

# Of edges, to find their common beat in. More say less: a device's clock drifts against ours.
BEAT_EDGES = 32
MIN_BEAT_EDGES = 6
TRIED_BEATS = 32


@dataclass(frozen=True)
class Reading:
    """One call of the counter.

    Attributes:
        begin_seconds: Just before the call.
        end_seconds: Just after it; the value was that of a moment in between.
        energy_millijoules: What it said.
    """

    begin_seconds: float
    end_seconds: float
    energy_millijoules: int


@dataclass(frozen=True)
class Edge:
    """A step of the counter.

    Attributes:
        earliest_seconds: It was not before.
        latest_seconds: It was not after.
        energy_millijoules: The counter from then on: all energy used until the step.
    """

    earliest_seconds: float
    latest_seconds: float
    energy_millijoules: int

    @property
    def time_seconds(self) -> float:
        """The middle of when it may have been."""
        return (self.earliest_seconds + self.latest_seconds) / 2

    @property
    def uncertainty_seconds(self) -> float:
        """Half of how long that is."""
        return (self.latest_seconds - self.earliest_seconds) / 2


class CounterHistory:
    """The edges of one counter, from its readings, bounded in memory.

    Args:
        limit: How many edges are kept.

    Attributes:
        resets: How often the counter fell: a driver was loaded anew, or the device was reset. What was before a reset
            is forgotten, since nothing says how much was used around it.

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
        """Take a reading; readings come in order of time."""
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
        """The edges seen, oldest first, the last ones as narrow as their beat makes them."""
        edges = list(self._edges)
        return edges[:-BEAT_EDGES] + narrowed(edges[-BEAT_EDGES:])


def narrowed(edges: Sequence[Edge]) -> list[Edge]:
    """The same edges, narrower where they have a common beat.

    A device steps its counter at a beat (an H200's of 100 ms fits 120 edges to within the 5 ms of a call). Every edge
    was within its own interval, so for a given beat all intervals, shifted onto one another, have a piece in common
    that holds the true edge; what any possible beat leaves of an edge's interval is what may have been. Where no beat
    fits, the edges stay as they are.

    Example:
        >>> seen = [Edge(k * 0.1 - 0.003 * (k % 3), k * 0.1 + 0.008 - 0.003 * (k % 3), k) for k in range(12)]
        >>> max(edge.uncertainty_seconds for edge in seen) > 0.003 > max(e.uncertainty_seconds for e in narrowed(seen))
        True
    """
    if len(edges) < MIN_BEAT_EDGES:
        return list(edges)
    gaps = sorted(after.time_seconds - before.time_seconds for before, after in itertools.pairwise(edges))
    roughly = gaps[len(gaps) // 2]
    counts = [round((edge.time_seconds - edges[0].time_seconds) / roughly) for edge in edges]
    if len(set(counts)) < len(counts):
        return list(edges)
    possible = _possible_beats(counts, edges)
    if not possible:
        return list(edges)
    # Between two of the beats that were tried an edge moves by this at most.
    slack = abs(possible[-1][0] - possible[0][0]) / TRIED_BEATS * counts[-1]
    return [
        Edge(
            max(edge.earliest_seconds, min(first + count * beat for beat, first, _ in possible) - slack),
            min(edge.latest_seconds, max(last + count * beat for beat, _, last in possible) + slack),
            edge.energy_millijoules,
        )
        for count, edge in zip(counts, edges, strict=True)
    ]


def _possible_beats(counts: Sequence[int], edges: Sequence[Edge]) -> list[tuple[float, float, float]]:
    """The beats that fit all edges, each with the earliest and latest moment of the edge counted 0."""
    numbered = list(zip(counts, edges, strict=True))
    pairs = [(later - sooner, one, other) for (sooner, one), (later, other) in itertools.combinations(numbered, 2)]
    slowest = min((other.latest_seconds - one.earliest_seconds) / beats for beats, one, other in pairs)
    fastest = max((other.earliest_seconds - one.latest_seconds) / beats for beats, one, other in pairs)
    if fastest > slowest:
        return []
    possible = []
    for step in range(TRIED_BEATS + 1):
        beat = fastest + (slowest - fastest) * step / TRIED_BEATS
        first = max(edge.earliest_seconds - count * beat for count, edge in numbered)
        last = min(edge.latest_seconds - count * beat for count, edge in numbered)
        if first <= last:
            possible.append((beat, first, last))
    return possible
