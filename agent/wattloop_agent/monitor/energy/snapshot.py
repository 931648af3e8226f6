"""Where a GPU's cumulative energy stood at a moment, and the energy between two such moments."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class EnergySnapshot:
    """A GPU's account at a moment.

    Attributes:
        energy_millijoules: Cumulative.
        uncertainty_millijoules: How far that moment's energy may be off.
        estimation_error_millijoules: Cumulative: the part of that energy that no counter measured.
        noise_square_millijoules: Cumulative: the errors of integrated power, which are independent, in squares.
        time_seconds: The GPU's energy clock.
    """

    energy_millijoules: float
    uncertainty_millijoules: float
    estimation_error_millijoules: float
    noise_square_millijoules: float
    time_seconds: float

    def not_before(self, other: EnergySnapshot) -> EnergySnapshot:
        """This mark, or where it would be less than an older one (both were estimated), with the older one's values."""
        return EnergySnapshot(
            max(self.energy_millijoules, other.energy_millijoules),
            self.uncertainty_millijoules,
            max(self.estimation_error_millijoules, other.estimation_error_millijoules),
            max(self.noise_square_millijoules, other.noise_square_millijoules),
            max(self.time_seconds, other.time_seconds),
        )


def energy_from(start: EnergySnapshot, end: EnergySnapshot) -> tuple[float, float]:
    """The energy between two marks and its uncertainty, in millijoules.

    Example:
        >>> energy_from(EnergySnapshot(100.0, 1.0, 0.0, 0.0, 0.0), EnergySnapshot(1100.0, 2.0, 50.0, 16.0, 4.0))
        (1000.0, 57.0)
    """
    estimation_error = end.estimation_error_millijoules - start.estimation_error_millijoules
    noise = math.sqrt(max(end.noise_square_millijoules - start.noise_square_millijoules, 0.0))
    uncertainty = start.uncertainty_millijoules + end.uncertainty_millijoules + estimation_error + noise
    return end.energy_millijoules - start.energy_millijoules, uncertainty


def start_between(low: EnergySnapshot, high: EnergySnapshot) -> EnergySnapshot:
    """The mark of a begin that was somewhere between two: in the middle, uncertain by half, all doubt behind it."""
    return _between(low, high, low)


def end_between(low: EnergySnapshot, high: EnergySnapshot) -> EnergySnapshot:
    """The mark of an end that was somewhere between two: in the middle, uncertain by half, all doubt before it."""
    return _between(low, high, high)


def end_at_latest(low: EnergySnapshot, high: EnergySnapshot) -> EnergySnapshot:
    """The mark of an end somewhere between two where nobody else can have used the GPU: all of it was the one's."""
    spread = high.energy_millijoules - low.energy_millijoules
    return EnergySnapshot(
        high.energy_millijoules,
        spread + max(low.uncertainty_millijoules, high.uncertainty_millijoules),
        high.estimation_error_millijoules,
        high.noise_square_millijoules,
        high.time_seconds,
    )


def _between(low: EnergySnapshot, high: EnergySnapshot, doubts: EnergySnapshot) -> EnergySnapshot:
    half = (high.energy_millijoules - low.energy_millijoules) / 2
    return EnergySnapshot(
        low.energy_millijoules + half,
        half + max(low.uncertainty_millijoules, high.uncertainty_millijoules),
        doubts.estimation_error_millijoules,
        doubts.noise_square_millijoules,
        (low.time_seconds + high.time_seconds) / 2,
    )
