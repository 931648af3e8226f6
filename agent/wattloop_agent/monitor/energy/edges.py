"""When a GPU's cumulative energy rose to what, as far back as is kept, and what that says of moments between."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence

from wattloop.energy import Edge, energy_at
from wattloop_agent.monitor.energy.counter_steps import MAX_STEP_SECONDS
from wattloop_agent.monitor.energy.gpu_sample import GpuSample
from wattloop_agent.monitor.energy.power_trace import PowerTrace

EDGES_LIMIT = 256


class Edges:
    """The newest edges of one GPU's energy, in order of time, bounded in memory.

    Example:
        >>> edges = Edges()
        >>> edges.add(0.0, 0.1, 0.0)
        >>> edges.add(1.0, 1.1, 100_000.0)
        >>> edges.mean_milliwatts()
        100000.0
        >>> edges.known_at(1.05).energy_millijoules
        0
    """

    def __init__(self) -> None:
        self._edges: deque[Edge] = deque(maxlen=EDGES_LIMIT)

    def __bool__(self) -> bool:
        return bool(self._edges)

    def add(self, earliest_seconds: float, latest_seconds: float, energy_millijoules: float) -> None:
        """The energy has risen to this, somewhen between two moments of the monotonic clock."""
        self._edges.append(Edge(earliest_seconds, latest_seconds, round(energy_millijoules)))

    def forget(self) -> None:
        """What was known says nothing of what comes."""
        self._edges.clear()

    def until(self, last: GpuSample, energy_millijoules: float) -> list[Edge]:
        """The edges and, where the energy has stood since the last of them, the last sample."""
        points = list(self._edges)
        if points and last.begin_seconds > points[-1].time_seconds:
            points.append(Edge(last.begin_seconds, last.end_seconds, round(energy_millijoules)))
        return points

    def known_at(self, moment: float) -> Edge | None:
        """The last edge that was known at a moment, else the oldest; None: there is none."""
        before = [edge for edge in self._edges if edge.latest_seconds <= moment]
        return before[-1] if before else next(iter(self._edges), None)

    def mean_milliwatts(self) -> float:
        """The mean power between the last two edges; 0: there are not two."""
        if len(self._edges) < 2:
            return 0.0
        before, behind = self._edges[-2], self._edges[-1]
        return (behind.energy_millijoules - before.energy_millijoules) / (behind.time_seconds - before.time_seconds)


def interpolate_energy(
    points: Sequence[Edge], moment: float, shape: PowerTrace, lag_millijoules: float
) -> tuple[float, float]:
    """Energy until a moment between edges, and its uncertainty, in millijoules.

    A straight line between two of them; where power was looked at in between, as power was.

    Args:
        points: The edges, two at least.
        moment: Not before the first, not after the last.
        shape: The GPU's power over time.
        lag_millijoules: What may have been used since a counter's step.
    """
    index = bisect.bisect_right(points, moment, 1, len(points) - 1, key=lambda edge: edge.time_seconds)
    before, behind = points[index - 1], points[index]
    share = None
    if behind.time_seconds - before.time_seconds > 2 * MAX_STEP_SECONDS:
        share = shape.share(before.time_seconds, moment, behind.time_seconds)
    if share is None:
        line = energy_at(points, moment)
        return line.joules * 1e3, line.uncertainty_joules * 1e3
    rise = behind.energy_millijoules - before.energy_millijoules
    off = shape.uncertainty_millijoules(before.time_seconds, behind.time_seconds)
    return before.energy_millijoules + share * rise, min(off, max(share, 1 - share) * rise) + lag_millijoules
