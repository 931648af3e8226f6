"""A counter that began anew while nobody looked: how that is known, and what was used then."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from wattloop.energy import energy_of_power
from wattloop_agent.monitor.energy.gpu_sample import GpuSample
from wattloop_agent.monitor.energy.power_trace import PowerTrace

# Of a gap longer than this between two readings, power at its ends says little.
GAP_SECONDS = 10.0
# Ten times what any GPU draws: a counter that rose faster says something else than energy.
MAX_WATTS = 10_000.0
# More than any GPU draws for long: what a counter says that began anew is no more than this times its time.
MAX_GPU_WATTS = 2_000.0


class CounterReset(enum.Enum):
    """Whether a counter has begun anew since it was read last, where it does not show by being lower."""

    NO = "no"
    PERHAPS = "perhaps: nobody looked, and nothing tells"
    YES = "yes: the driver was loaded again"


def can_have_risen(last: GpuSample, sample: GpuSample) -> bool:
    """Whether a counter can have gone on from one sample to another; where not, it began anew or jumped."""
    if last.counter_millijoules is None or sample.counter_millijoules is None:
        return True
    return 0 <= sample.counter_millijoules - last.counter_millijoules <= _most_millijoules(last, sample)


def _most_millijoules(last: GpuSample, sample: GpuSample) -> float:
    """The most that a counter can have risen between two samples."""
    return (max(sample.clock_seconds - last.clock_seconds, 0.0) + GAP_SECONDS) * MAX_WATTS * 1e3


@dataclass(frozen=True)
class PossibleReset:
    """A gap between two readings of a counter, as it was if the counter began anew in it.

    Attributes:
        begin_seconds: The GPU's energy clock at the first reading.
        end_seconds: At the second.
        powers: (energy clock, watts) as far as they are known, in order of time.
        counter_millijoules: What the counter says at the second reading.
        most_millijoules: More than any counter can rise in the gap.
    """

    begin_seconds: float
    end_seconds: float
    powers: Sequence[tuple[float, float]]
    counter_millijoules: int
    most_millijoules: float

    @classmethod
    def between(cls, last: GpuSample, sample: GpuSample, shape: PowerTrace) -> Self:
        """The gap between two samples of one counter.

        Args:
            last: The first.
            sample: The second, which tells the counter.
            shape: The GPU's power over time.
        """
        return cls(
            last.clock_seconds,
            max(sample.clock_seconds, last.clock_seconds),
            powers=shape.readings(last.begin_seconds),
            counter_millijoules=sample.counter_millijoules or 0,
            most_millijoules=_most_millijoules(last, sample),
        )

    @property
    def used_millijoules(self) -> float:
        """What was used in the gap: what the counter says is the least, power over the gap an estimate."""
        return max(self._by_power()[0], self._least())

    @property
    def estimation_error_millijoules(self) -> float:
        """How far that may be off: all that the counter does not say."""
        return self.used_millijoules - self._least() + self._by_power()[1]

    def missed_millijoules(self, counted_millijoules: float, step_seconds: float) -> float:
        """How much more may have been used than the difference of the readings, which counts as if none began anew.

        Args:
            counted_millijoules: That difference.
            step_seconds: How long the counter stands.

        Returns:
            0 where the counter says more than any GPU can have used in the gap: it can't have begun anew.

        Example:
            >>> hour = PossibleReset(0.0, 3600.0, [(0.0, 300.0), (3600.0, 300.0)], 8_000_000_000, 36e9)
            >>> hour.missed_millijoules(1.08e9, 0.1)
            0.0
        """
        if self.counter_millijoules > (self.end_seconds - self.begin_seconds + step_seconds) * MAX_GPU_WATTS * 1e3:
            return 0.0
        return max(self.used_millijoules - counted_millijoules, 0.0) + self.estimation_error_millijoules

    def _least(self) -> float:
        # A counter that jumped tells nothing, nor does one that fell to what no GPU can have used in that time.
        return float(self.counter_millijoules) if self.counter_millijoules <= self.most_millijoules else 0.0

    def _by_power(self) -> tuple[float, float]:
        """Power integrated over the gap, and its uncertainty, in millijoules."""
        if not self.powers:
            return 0.0, 0.0
        within = [(clock, watts) for clock, watts in self.powers if self.begin_seconds < clock < self.end_seconds]
        ends = (self.begin_seconds, self.powers[0][1]), (self.end_seconds, self.powers[-1][1])
        integrated = energy_of_power([ends[0], *within, ends[1]])
        return integrated.joules * 1e3, integrated.uncertainty_joules * 1e3
