"""Recent history of a GPU's cumulative energy, and snapshots of it between two readings."""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.energy import Edge, energy_at
from wattloop.energy.energy_estimate import Energy
from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy.power_history import PowerHistory
from wattloop_agent.monitor.energy.counter import UPDATE_PERIOD_SECONDS

MAX_EDGES = 256


class EnergyHistory:
    """The newest edges of a GPU's cumulative energy, in order of time, with bounded memory.

    Example:
        >>> history = EnergyHistory()
        >>> history.add(0.0, 0.1, 0.0)
        >>> history.add(1.0, 1.1, 100_000.0)
        >>> history.mean_milliwatts()
        100000.0
        >>> history.last_edge_before(1.05).energy_millijoules
        0
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

    def edges_until(self, last: GpuReading, energy_millijoules: float) -> list[Edge]:
        """Return the edges, and the last sample if the energy is unchanged since the last edge."""
        edges = list(self._edges)
        if edges and last.begin_seconds > edges[-1].time_seconds:
            edges.append(Edge(last.begin_seconds, last.end_seconds, round(energy_millijoules)))
        return edges

    def last_edge_before(self, moment: float) -> Edge | None:
        """Return the last edge that was certain at a moment, else the oldest, else None."""
        before = [edge for edge in self._edges if edge.latest_seconds <= moment]
        return before[-1] if before else next(iter(self._edges), None)

    def mean_milliwatts(self) -> float:
        """Return the mean power between the last two edges; 0 if there are fewer."""
        if len(self._edges) < 2:
            return 0.0
        before, after = self._edges[-2], self._edges[-1]
        return (after.energy_millijoules - before.energy_millijoules) / (after.time_seconds - before.time_seconds)


def interpolate_energy(edges: Sequence[Edge], moment: float, power: PowerHistory, lag_joules: float) -> Energy:
    """Return the cumulative energy at a moment between edges, and its uncertainty.

    Energy between two edges is linear in time; if power was sampled between them, it follows the
    readings of power.

    Args:
        edges: At least two edges.
        moment: Not before the first edge, not after the last.
        power: Power of the GPU over time.
        lag_joules: Energy that may have been used since the counter's last update.
    """
    index = bisect.bisect_right(edges, moment, 1, len(edges) - 1, key=lambda edge: edge.time_seconds)
    before, after = edges[index - 1], edges[index]
    share = None
    if after.time_seconds - before.time_seconds > 2 * UPDATE_PERIOD_SECONDS:
        share = power.share_until(moment, before.time_seconds, after.time_seconds)
    if share is None:
        return energy_at(edges, moment)
    rise = (after.energy_millijoules - before.energy_millijoules) / 1e3
    uncertainty = power.energy_between(before.time_seconds, after.time_seconds).uncertainty_joules
    uncertainty = min(uncertainty, max(share, 1 - share) * rise)
    return Energy(before.energy_millijoules / 1e3 + share * rise, uncertainty + lag_joules)


@dataclass(frozen=True)
class EnergySnapshot:
    """A GPU's energy account at a moment.

    Attributes:
        energy_millijoules: Cumulative energy.
        uncertainty_millijoules: Uncertainty of the energy at that moment.
        estimation_error_millijoules: Cumulative: the part of the energy that no counter measured.
        noise_square_millijoules: Cumulative: sum of squares of the errors of integrated power,
            which are independent.
        time_seconds: Energy clock of the GPU.
    """

    energy_millijoules: float
    uncertainty_millijoules: float
    estimation_error_millijoules: float
    noise_square_millijoules: float
    time_seconds: float

    def not_before(self, other: EnergySnapshot) -> EnergySnapshot:
        """Return this snapshot with no cumulative value below that of an older one.

        Both are estimates, so the newer one can be lower.
        """
        return EnergySnapshot(
            max(self.energy_millijoules, other.energy_millijoules),
            self.uncertainty_millijoules,
            max(self.estimation_error_millijoules, other.estimation_error_millijoules),
            max(self.noise_square_millijoules, other.noise_square_millijoules),
            max(self.time_seconds, other.time_seconds),
        )

    @staticmethod
    def from_record(values: object) -> EnergySnapshot:
        """Return the snapshot of a list with the fields' values, in their order.

        Raises:
            TypeError: The list is invalid.
            ValueError: A value is not a number.
        """
        if not isinstance(values, list):
            raise TypeError("an energy snapshot must be a list of numbers")
        return EnergySnapshot(*(float(value) for value in values))


def energy_from(start: EnergySnapshot, end: EnergySnapshot) -> tuple[float, float]:
    """Return the energy between two snapshots and its uncertainty, in millijoules.

    Example:
        >>> energy_from(EnergySnapshot(100.0, 1.0, 0.0, 0.0, 0.0), EnergySnapshot(1100.0, 2.0, 50.0, 16.0, 4.0))
        (1000.0, 57.0)
    """
    estimation_error = end.estimation_error_millijoules - start.estimation_error_millijoules
    noise = math.sqrt(max(end.noise_square_millijoules - start.noise_square_millijoules, 0.0))
    uncertainty = start.uncertainty_millijoules + end.uncertainty_millijoules + estimation_error + noise
    return end.energy_millijoules - start.energy_millijoules, uncertainty


def start_between(low: EnergySnapshot, high: EnergySnapshot) -> EnergySnapshot:
    """Return the start of a usage between two snapshots: their middle, uncertain by half.

    Estimation errors of the time between them belong to the usage.
    """
    return _middle(low, high, low)


def end_between(low: EnergySnapshot, high: EnergySnapshot) -> EnergySnapshot:
    """Return the end of a usage between two snapshots: their middle, uncertain by half.

    Estimation errors of the time between them belong to the usage.
    """
    return _middle(low, high, high)


def latest_end(low: EnergySnapshot, high: EnergySnapshot) -> EnergySnapshot:
    """Return the end of a usage between two snapshots if nothing else can have used the GPU.

    All energy between them belongs to the usage, and all of it is uncertain.
    """
    spread = high.energy_millijoules - low.energy_millijoules
    return EnergySnapshot(
        high.energy_millijoules,
        spread + max(low.uncertainty_millijoules, high.uncertainty_millijoules),
        high.estimation_error_millijoules,
        high.noise_square_millijoules,
        high.time_seconds,
    )


def _middle(low: EnergySnapshot, high: EnergySnapshot, errors: EnergySnapshot) -> EnergySnapshot:
    half = (high.energy_millijoules - low.energy_millijoules) / 2
    return EnergySnapshot(
        low.energy_millijoules + half,
        half + max(low.uncertainty_millijoules, high.uncertainty_millijoules),
        errors.estimation_error_millijoules,
        errors.noise_square_millijoules,
        (low.time_seconds + high.time_seconds) / 2,
    )
