"""Properties of an energy counter: its update period, and resets between two readings."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from wattloop.energy.energy_history import UPDATE_PERIOD_SECONDS
from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy.power_history import PowerHistory, energy_of_power

# Power at both ends of a longer gap between two readings says little about the gap.
GAP_SECONDS = 10.0
# Ten times what any GPU draws: a counter that rises faster does not measure energy.
MAX_WATTS = 10_000.0
# More than any GPU draws for long: a counter that was reset has counted at most this times the elapsed time.
MAX_GPU_WATTS = 2_000.0


class CounterUpdates:
    """Estimates when a counter was updated, from samples that do or do not show a new value.

    Attributes:
        period_seconds: Longest time for which the counter was seen unchanged, at least that of a busy GPU.
    """

    def __init__(self) -> None:
        self.period_seconds = UPDATE_PERIOD_SECONDS
        self._updated_clock_seconds = 0.0

    def updated(self, sample: GpuReading) -> None:
        """Record a sample whose counter differs from the one before."""
        self._updated_clock_seconds = sample.clock_seconds

    def unchanged(self, sample: GpuReading) -> None:
        """Record a sample whose counter equals the one before."""
        self.period_seconds = max(self.period_seconds, sample.clock_seconds - self._updated_clock_seconds)

    def earliest_update(self, last: GpuReading, sample: GpuReading) -> float:
        """Return the earliest possible moment of the last update before a sample."""
        drift = (sample.clock_seconds - sample.begin_seconds) - (last.clock_seconds - last.begin_seconds)
        if abs(drift) > self.period_seconds / 10:
            # Simulated time runs at another rate than the system clock, so the period does not apply.
            return last.begin_seconds
        return max(last.begin_seconds, sample.begin_seconds - self.period_seconds)


class CounterReset(enum.Enum):
    """Whether a counter was reset since its last reading, where a lower value does not show it."""

    NO = "no"
    POSSIBLE = "possible: the counter was not watched, and the driver load is unknown"
    YES = "yes: the driver was loaded again"


def can_have_risen(last: GpuReading, sample: GpuReading) -> bool:
    """Return whether a counter can have risen between two samples, else it was reset or jumped."""
    if last.energy_millijoules is None or sample.energy_millijoules is None:
        return True
    return 0 <= sample.energy_millijoules - last.energy_millijoules <= _max_rise(last, sample)


def _max_rise(last: GpuReading, sample: GpuReading) -> float:
    """Return the most millijoules that a counter can rise between two samples."""
    return (max(sample.clock_seconds - last.clock_seconds, 0.0) + GAP_SECONDS) * MAX_WATTS * 1e3


@dataclass(frozen=True)
class ResetGap:
    """A gap between two readings of a counter, assuming that the counter was reset in it.

    Attributes:
        begin_seconds: Energy clock of the GPU at the first reading.
        end_seconds: Energy clock at the second reading.
        powers: Known (energy clock, watts), in order of time.
        counter_millijoules: Counter at the second reading.
        max_millijoules: More than any counter can rise in the gap.
    """

    begin_seconds: float
    end_seconds: float
    powers: Sequence[tuple[float, float]]
    counter_millijoules: int
    max_millijoules: float

    @classmethod
    def between(cls, last: GpuReading, sample: GpuReading, power: PowerHistory) -> Self:
        """Return the gap between two samples of one counter, of which the second has a value."""
        return cls(
            last.clock_seconds,
            max(sample.clock_seconds, last.clock_seconds),
            powers=power.clocked_since(last.begin_seconds),
            counter_millijoules=sample.energy_millijoules or 0,
            max_millijoules=_max_rise(last, sample),
        )

    @property
    def used_millijoules(self) -> float:
        """Energy used in the gap: the counter is a lower bound, integrated power an estimate."""
        return max(self._integrated()[0], self._lower_bound())

    @property
    def estimation_error_millijoules(self) -> float:
        """Uncertainty of `used_millijoules`: all of it that the counter did not measure."""
        return self.used_millijoules - self._lower_bound() + self._integrated()[1]

    def missed_millijoules(self, counted_millijoules: float, update_period_seconds: float) -> float:
        """Return the energy that the counted difference of the readings misses if the counter was reset.

        It is 0 if the counter is higher than any GPU can reach within the gap, which rules a reset out.

        Example:
            >>> hour = ResetGap(0.0, 3600.0, [(0.0, 300.0), (3600.0, 300.0)], 8_000_000_000, 36e9)
            >>> hour.missed_millijoules(1.08e9, 0.1)
            0.0
        """
        longest = self.end_seconds - self.begin_seconds + update_period_seconds
        if self.counter_millijoules > longest * MAX_GPU_WATTS * 1e3:
            return 0.0
        return max(self.used_millijoules - counted_millijoules, 0.0) + self.estimation_error_millijoules

    def _lower_bound(self) -> float:
        # A counter that jumped is no bound, nor is one that fell to a value that no GPU can reach in that time.
        return float(self.counter_millijoules) if self.counter_millijoules <= self.max_millijoules else 0.0

    def _integrated(self) -> tuple[float, float]:
        """Return power integrated over the gap, and its uncertainty, in millijoules."""
        if not self.powers:
            return 0.0, 0.0
        within = [(clock, watts) for clock, watts in self.powers if self.begin_seconds < clock < self.end_seconds]
        ends = (self.begin_seconds, self.powers[0][1]), (self.end_seconds, self.powers[-1][1])
        integrated = energy_of_power([ends[0], *within, ends[1]])
        return integrated.joules * 1e3, integrated.uncertainty_joules * 1e3
