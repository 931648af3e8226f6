"""Energy at moments between rare readings of a counter, with bounds: from its edges and the power in between."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy.power_history import EnergyEstimate, PowerHistory

MAX_EDGES = 256
# Longest update period of the counter of a busy GPU (100 ms on an H200).
UPDATE_PERIOD_SECONDS = 0.1


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

    @property
    def is_undated(self) -> bool:
        """Whether the step lies anywhere between two readings: the counter's update period does not date it."""
        return self.uncertainty_seconds > UPDATE_PERIOD_SECONDS

    def watts_until(self, later: Edge) -> float:
        """Mean power until a later edge."""
        rise = later.energy_millijoules - self.energy_millijoules
        return rise / 1000 / (later.time_seconds - self.time_seconds)


class EnergyHistory:
    """The newest edges of a GPU's cumulative energy, in order of time, with bounded memory.

    Example:
        >>> history = EnergyHistory()
        >>> for second in range(5):
        ...     history.add(second, second, 10_000.0 * second)
        >>> energy_at(history.edges(), 2.5)
        EnergyEstimate(joules=25.0, uncertainty_joules=0.0)
        >>> history.mean_watts()
        10.0
        >>> history.last_edge_before(2.5).energy_millijoules
        20000
    """

    def __init__(self) -> None:
        self._edges: deque[Edge] = deque(maxlen=MAX_EDGES)

    def __bool__(self) -> bool:
        return bool(self._edges)

    def add(self, earliest_seconds: float, latest_seconds: float, energy_millijoules: float) -> None:
        """Record that the energy rose to this value between two moments of the monotonic clock."""
        self._edges.append(Edge(earliest_seconds, latest_seconds, round(energy_millijoules)))

    def clear(self) -> None:
        """Remove all edges, for example after a reset of the counter."""
        self._edges.clear()

    def edges(self, newest: GpuReading | None = None, energy_millijoules: float = 0.0) -> list[Edge]:
        """The edges, and the newest reading if the energy is unchanged since the last edge."""
        edges = list(self._edges)
        if newest is not None and edges and newest.begin_seconds > edges[-1].time_seconds:
            edges.append(Edge(newest.begin_seconds, newest.end_seconds, round(energy_millijoules)))
        return edges

    def last_edge_before(self, moment: float) -> Edge | None:
        """The last edge that was certain at a moment, else the oldest, else None."""
        before = [edge for edge in self._edges if edge.latest_seconds <= moment]
        return before[-1] if before else next(iter(self._edges), None)

    def mean_watts(self) -> float:
        """Mean power between the last two edges; 0 if there are fewer."""
        return self._edges[-2].watts_until(self._edges[-1]) if len(self._edges) > 1 else 0.0


def energy_at(
    edges: Sequence[Edge], moment: float, power: PowerHistory | None = None, lag_joules: float = 0.0
) -> EnergyEstimate:
    """Energy used until a moment, counted from the zero of the counter.

    Between two edges it follows the power that was read between them, else a straight line. Beside a step that lies
    anywhere between two readings, the bound holds what these readings show.

    Args:
        edges: Edges of the counter, oldest first; at least two, at distinct times.
        moment: Time in seconds, on the clock of the readings.
        power: Power of the GPU over time.
        lag_joules: Energy that may have been used since the counter's last update.

    Returns:
        The energy. Its bound holds between the second and the last but one edge, provided that power changed at most
        once between two edges without a reading of power.
    """
    after = bisect.bisect_right(edges, moment, key=lambda edge: edge.time_seconds)
    index = min(max(after, 1), len(edges) - 1)
    found = _interpolated(edges, index, moment, power, lag_joules)
    if not (edges[index - 1].is_undated or edges[index].is_undated):
        return found
    low, high = _shown_by_readings(edges, moment)
    farthest = max(found.joules - low, high - found.joules) + lag_joules
    return EnergyEstimate(found.joules, max(found.uncertainty_joules, farthest))


def _interpolated(
    edges: Sequence[Edge], index: int, moment: float, power: PowerHistory | None, lag_joules: float
) -> EnergyEstimate:
    before, behind = edges[index - 1], edges[index]
    share = None
    if power is not None and behind.time_seconds - before.time_seconds > 2 * UPDATE_PERIOD_SECONDS:
        share = power.share_until(moment, before.time_seconds, behind.time_seconds)
    if power is None or share is None:
        return _on_line(edges, index, moment)
    rise = (behind.energy_millijoules - before.energy_millijoules) / 1000
    uncertainty = power.energy_between(before.time_seconds, behind.time_seconds).uncertainty_joules
    uncertainty = min(uncertainty, max(share, 1 - share) * rise)
    return EnergyEstimate(before.energy_millijoules / 1000 + share * rise, uncertainty + lag_joules)


def _shown_by_readings(edges: Sequence[Edge], moment: float) -> tuple[float, float]:
    """What the counter had reached by the last reading before a moment and by the next one, in joules."""
    stepped = bisect.bisect_right(edges, moment, key=lambda edge: edge.latest_seconds)
    may_have_stepped = bisect.bisect_left(edges, moment, key=lambda edge: edge.earliest_seconds)
    return (
        edges[max(stepped - 1, 0)].energy_millijoules / 1000,
        edges[max(may_have_stepped - 1, 0)].energy_millijoules / 1000,
    )


def _on_line(edges: Sequence[Edge], index: int, moment: float) -> EnergyEstimate:
    before, behind = edges[index - 1], edges[index]
    watts = before.watts_until(behind)
    joules = before.energy_millijoules / 1000 + watts * (moment - before.time_seconds)
    timing = watts * max(before.uncertainty_seconds, behind.uncertainty_seconds)
    return EnergyEstimate(joules, timing + _invisible_change(edges, index, moment))


def _invisible_change(edges: Sequence[Edge], index: int, moment: float) -> float:
    """The largest error, in joules, from a change of power within a step, which the counter does not show."""
    before, behind = edges[index - 1], edges[index]
    watts = before.watts_until(behind)
    neighbours = [watts]
    if index >= 2:
        neighbours.append(edges[index - 2].watts_until(before))
    if index + 1 < len(edges):
        neighbours.append(behind.watts_until(edges[index + 1]))
    # A jump by the swing inside a step bends the line by at most a quarter of the swing times the step's length.
    bend = (max(neighbours) - min(neighbours)) * (behind.time_seconds - before.time_seconds) / 4
    # Outside there are no readings: power may have fallen to zero or doubled.
    return watts * max(before.time_seconds - moment, moment - behind.time_seconds, 0.0) + bend
