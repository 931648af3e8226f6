"""Samples of a GPU's energy counter and power, and the power trace that they form.

The power trace shows how energy is spread between two counter readings, and how much energy was
used since the last one.
"""

from __future__ import annotations

import bisect
import itertools
import math
from array import array
from typing import NamedTuple

# From Ampere on, NVML reports the mean power of the last second, so a change of power shows that
# much later.
AVERAGING_SECONDS = 1.0
# A hundred seconds at 10 Hz. For earlier times the counter readings alone must do.
MAX_POINTS = 1000


class GpuSample(NamedTuple):
    """One sample of a GPU; a tuple, since each sampling makes one for each GPU.

    Attributes:
        uuid: UUID of the GPU.
        product: Its model.
        begin_seconds: System monotonic clock just before the sampling.
        end_seconds: System monotonic clock just after.
        clock_seconds: Clock over which energy is integrated: the same clock, or the simulator's.
        counter_millijoules: Energy counter; None if the GPU has none, or it was not read or not
            answered.
        power_watts: Power draw; None if not reported.
        problem: Why a value that the GPU otherwise reports is missing; empty if none is.
        instant_watts: The last value of the power sensor, not averaged; None if the counter was not
            read, or it is not reported. For subscribers.
    """

    uuid: str
    product: str
    begin_seconds: float
    end_seconds: float
    clock_seconds: float
    counter_millijoules: int | None
    power_watts: float | None
    problem: str = ""
    instant_watts: float | None = None


class Estimate(NamedTuple):
    """Energy estimated from power, and its uncertainty."""

    millijoules: float
    uncertainty_millijoules: float


class PowerTrace:
    """Power over time and its integral by the trapezoidal rule, with bounded memory.

    Example:
        >>> trace = PowerTrace()
        >>> for second in range(5):
        ...     trace.add(second, second, 100.0 if second < 3 else 300.0)
        >>> trace.energy_since(1.0).millijoules
        600000.0
        >>> trace.energy_fraction(0.0, 2.0, 4.0)
        0.2857142857142857
    """

    def __init__(self) -> None:
        # Columns of numbers: as objects, the points of all GPUs of a node would take megabytes.
        self._moments = array("d")
        self._clocks = array("d")
        self._watts = array("d")
        self._joules = array("d")

    def add(self, moment_seconds: float, clock_seconds: float, watts: float) -> None:
        """Add a reading; readings are in order of time.

        Args:
            moment_seconds: System monotonic clock.
            clock_seconds: Clock over which energy is integrated; no energy is added when it goes
                back.
            watts: Power.
        """
        joules = 0.0
        if self._moments:
            mean = (self._watts[-1] + watts) / 2
            joules = self._joules[-1] + max(clock_seconds - self._clocks[-1], 0.0) * mean
        values = (moment_seconds, clock_seconds, watts, joules)
        columns = (self._moments, self._clocks, self._watts, self._joules)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
            if len(column) >= 2 * MAX_POINTS:
                del column[:-MAX_POINTS]

    def energy_since(self, begin_seconds: float, until_seconds: float = math.inf) -> Estimate:
        """Return the energy between two moments, as far as there are readings."""
        if not self._moments or self._moments[-1] <= begin_seconds:
            return Estimate(0.0, 0.0)
        joules = self._joules_at(until_seconds) - self._joules_at(begin_seconds)
        return Estimate(joules * 1e3, self.uncertainty_millijoules(begin_seconds, until_seconds))

    def energy_fraction(self, begin_seconds: float, moment_seconds: float, end_seconds: float) -> float | None:
        """Return the fraction of an interval's energy that was used until a moment within it.

        None if the trace has no more information than a straight line: fewer than two readings lie
            in the interval.
        """
        first = bisect.bisect_right(self._moments, begin_seconds)
        last = bisect.bisect_left(self._moments, end_seconds)
        if first == 0 or last - first < 2:
            return None
        begin, end = self._joules_at(begin_seconds), self._joules_at(end_seconds)
        if end <= begin:
            return None
        return (self._joules_at(min(max(moment_seconds, begin_seconds), end_seconds)) - begin) / (end - begin)

    def uncertainty_millijoules(self, begin_seconds: float, end_seconds: float) -> float:
        """Return the uncertainty of the energy that the trace gives for an interval.

        A change of power shows up to the averaging time late. That adds the whole range of power
        over the interval times the averaging time, once, however long the interval is. Between two
        readings the moment of a change is unknown, which adds half of each change times the time
        between the readings, in squares.
        """
        first = max(bisect.bisect_right(self._moments, begin_seconds) - 1, 0)
        last = bisect.bisect_left(self._moments, end_seconds)
        watts, clocks = self._watts[first : last + 1], self._clocks[first : last + 1]
        if not watts:
            return 0.0
        squares = sum(
            ((after - before) * max(end - begin, 0.0) / 2) ** 2
            for (before, after), (begin, end) in zip(itertools.pairwise(watts), itertools.pairwise(clocks), strict=True)
        )
        return ((max(watts) - min(watts)) * AVERAGING_SECONDS + math.sqrt(squares)) * 1e3

    def readings_since(self, begin_seconds: float) -> list[tuple[float, float]]:
        """Return (clock, watts) of each reading from a moment on, that moment included."""
        first = bisect.bisect_left(self._moments, begin_seconds)
        return list(zip(self._clocks[first:], self._watts[first:], strict=True))

    def _joules_at(self, moment_seconds: float) -> float:
        moments, joules = self._moments, self._joules
        after = bisect.bisect_right(moments, moment_seconds)
        if after == 0:
            return joules[0]
        if after == len(moments):
            return joules[-1]
        fraction = (moment_seconds - moments[after - 1]) / (moments[after] - moments[after - 1])
        return joules[after - 1] + (joules[after] - joules[after - 1]) * fraction
