"""A GPU's energy account at a moment, and the energy between two of them."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop.energy.gpu_reading import accumulated_error


@dataclass(frozen=True)
class EnergySnapshot:
    """A GPU's energy account at a moment.

    Attributes:
        energy_millijoules: Cumulative energy.
        uncertainty_millijoules: Uncertainty of the energy at that moment.
        estimation_error_millijoules: Cumulative: the part of the energy that no counter measured.
        noise_square_millijoules: Cumulative: sum of squares of the errors of integrated power, which are independent.
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
        """Return the snapshot of a list with the fields' values, in their order, or raise `TypeError`, `ValueError`."""
        if not isinstance(values, list):
            raise TypeError("an energy snapshot must be a list of numbers")
        return EnergySnapshot(*(float(value) for value in values))


def energy_from(start: EnergySnapshot, end: EnergySnapshot) -> tuple[float, float]:
    """Return the energy between two snapshots and its uncertainty, in millijoules.

    Example:
        >>> energy_from(EnergySnapshot(100.0, 1.0, 0.0, 0.0, 0.0), EnergySnapshot(1100.0, 2.0, 50.0, 16.0, 4.0))
        (1000.0, 57.0)
    """
    accumulated = accumulated_error(
        start.estimation_error_millijoules,
        start.noise_square_millijoules,
        end.estimation_error_millijoules,
        end.noise_square_millijoules,
    )
    uncertainty = start.uncertainty_millijoules + end.uncertainty_millijoules + accumulated
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
