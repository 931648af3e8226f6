"""Power over time and its integral, in bounded memory."""

import bisect
import itertools
import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EnergyEstimate:
    """An estimate of energy.

    Attributes:
        joules: The estimate.
        uncertainty_joules: Bound of the error, under the assumptions that the function that estimates it states.
    """

    joules: float
    uncertainty_joules: float


# Interval between updates of an H200's power sensor; a change of power in between is not visible.
SENSOR_STEP_SECONDS = 0.042


class PowerHistory:
    """Readings of power and their integral by the trapezoidal rule.

    Args:
        limit: The number of readings that are kept at least; the oldest are dropped.
        averaging_seconds: The time over which each reading is a mean; 0: it is the power at its moment. Between two
            readings at moments, power is linear in time; between two means it is their mean.

    Example:
        >>> history = PowerHistory()
        >>> for second in range(5):
        ...     history.add(second, 100.0 if second < 3 else 300.0)
        >>> history.joules_at(2.0) - history.joules_at(0.5)
        150.0
        >>> history.energy_between(1.0, math.inf).joules
        600.0
        >>> history.share_until(2.0, 0.0, 4.0)
        0.2857142857142857
    """

    def __init__(self, limit: int = 16384, averaging_seconds: float = 0.0) -> None:
        self._limit = limit
        self._averaging_seconds = averaging_seconds
        # Columns of numbers: as objects, they would take ten times the memory.
        self._moments = array("d")
        self._clocks = array("d")
        self._watts = array("d")
        self._joules = array("d")
        self._squares = array("d")

    def __len__(self) -> int:
        return len(self._moments)

    def add(self, moment_seconds: float, watts: float, clock_seconds: float | None = None) -> None:
        """Add a reading; one that is not later than the last is ignored.

        Args:
            moment_seconds: System monotonic clock.
            watts: Power.
            clock_seconds: Clock over which energy is integrated, if it is another; no energy is added when it goes
                back.
        """
        clock = moment_seconds if clock_seconds is None else clock_seconds
        joules = square = 0.0
        if self._moments:
            if moment_seconds <= self._moments[-1]:
                return
            elapsed = max(clock - self._clocks[-1], 0.0)
            joules = self._joules[-1] + elapsed * (self._watts[-1] + watts) / 2
            # The moment of a change is spread evenly over the time between the readings, or the sensor's step.
            unseen = abs(watts - self._watts[-1]) * max(elapsed, SENSOR_STEP_SECONDS)
            square = self._squares[-1] + unseen**2 / 12
        self._moments.append(moment_seconds)
        self._clocks.append(clock)
        self._watts.append(watts)
        self._joules.append(joules)
        self._squares.append(square)
        if len(self._moments) >= 2 * self._limit:
            for column in (self._moments, self._clocks, self._watts, self._joules, self._squares):
                del column[: -self._limit]

    @property
    def begin_seconds(self) -> float:
        """Time of the oldest reading; there is at least one."""
        return self._moments[0]

    @property
    def end_seconds(self) -> float:
        """Time of the newest reading; there is at least one."""
        return self._moments[-1]

    @property
    def last_watts(self) -> float:
        """The newest reading; there is at least one."""
        return self._watts[-1]

    def joules_at(self, moment_seconds: float) -> float:
        """The integral until a moment, from an arbitrary zero; there is at least one reading.

        Before the first and after the last reading, power is taken as constant.
        """
        moments, joules = self._moments, self._joules
        after = bisect.bisect_right(moments, moment_seconds)
        if after == 0:
            return joules[0] - (moments[0] - moment_seconds) * self._watts[0]
        before = after - 1
        elapsed = moment_seconds - moments[before]
        if after == len(moments):
            return joules[before] + elapsed * self._watts[before]
        length = moments[after] - moments[before]
        rate = max(self._clocks[after] - self._clocks[before], 0.0) / length
        if self._averaging_seconds:
            return joules[before] + rate * elapsed * (self._watts[before] + self._watts[after]) / 2
        slope = (self._watts[after] - self._watts[before]) / length
        return joules[before] + rate * elapsed * (self._watts[before] + slope * elapsed / 2)

    def variance_at(self, moment_seconds: float) -> float:
        """Variance of the integral until a moment, in joules squared; 0 before the first reading.

        A change of power between two readings is at an unknown moment, and changes are independent.
        """
        before = bisect.bisect_right(self._moments, moment_seconds) - 1
        return self._squares[before] if before >= 0 else 0.0

    def _joules_read_until(self, moment_seconds: float) -> float:
        """The integral until a moment, as far as there are readings."""
        return self.joules_at(min(max(moment_seconds, self._moments[0]), self._moments[-1]))

    def energy_between(self, begin_seconds: float, end_seconds: float) -> EnergyEstimate:
        """The energy between two moments, as far as there are readings.

        A change of power shows in means up to the averaging time late. That adds the whole range of power times the
        averaging time to the uncertainty, once, however long the interval is. Between two readings the moment of a
        change is unknown, see `energy_of_power`.
        """
        if not self._moments or self._moments[-1] <= begin_seconds:
            return EnergyEstimate(0.0, 0.0)
        joules = self._joules_read_until(end_seconds) - self._joules_read_until(begin_seconds)
        first = max(bisect.bisect_right(self._moments, begin_seconds) - 1, 0)
        last = bisect.bisect_left(self._moments, end_seconds)
        watts = self._watts[first : last + 1]
        late = (max(watts) - min(watts)) * self._averaging_seconds
        unseen = _unseen_changes(zip(self._clocks[first : last + 1], watts, strict=True))
        return EnergyEstimate(joules, late + unseen)

    def share_until(self, moment_seconds: float, begin_seconds: float, end_seconds: float) -> float | None:
        """The share of an interval's energy that was used until a moment within it.

        None if the readings say no more than a straight line: fewer than two lie in the interval.
        """
        first = bisect.bisect_right(self._moments, begin_seconds)
        last = bisect.bisect_left(self._moments, end_seconds)
        if first == 0 or last - first < 2:
            return None
        begin, end = self._joules_read_until(begin_seconds), self._joules_read_until(end_seconds)
        if end <= begin:
            return None
        return (self._joules_read_until(min(max(moment_seconds, begin_seconds), end_seconds)) - begin) / (end - begin)

    def between(self, begin_seconds: float, end_seconds: float) -> list[tuple[float, float]]:
        """(seconds, watts) of the readings from the last before a moment to the first after another."""
        first = max(bisect.bisect_right(self._moments, begin_seconds) - 1, 0)
        last = bisect.bisect_left(self._moments, end_seconds) + 1
        return list(zip(self._moments[first:last], self._watts[first:last], strict=True))

    def clocked_since(self, begin_seconds: float) -> list[tuple[float, float]]:
        """(clock, watts) of each reading from a moment on, that moment included."""
        first = bisect.bisect_left(self._moments, begin_seconds)
        return list(zip(self._clocks[first:], self._watts[first:], strict=True))


def energy_of_power(readings: Sequence[tuple[float, float]]) -> EnergyEstimate:
    """The energy between the first and the last power reading, by the trapezoidal rule.

    Args:
        readings: (seconds, watts), in order of time, at least two.

    Returns:
        The energy. The time of a change of power is known to within one step of the sensor, or the time between two
        readings if that is longer. Changes are independent of the steps, so their errors add in squares.

    Example:
        >>> energy_of_power([(0.0, 100.0), (4.0, 100.0), (10.0, 100.0)])
        EnergyEstimate(joules=1000.0, uncertainty_joules=0.0)
    """
    joules = sum((end - begin) * (before + after) / 2 for (begin, before), (end, after) in itertools.pairwise(readings))
    return EnergyEstimate(joules, _unseen_changes(readings))


def _unseen_changes(readings: Iterable[tuple[float, float]]) -> float:
    squares = (
        (abs(after - before) * max(end - begin, SENSOR_STEP_SECONDS) / 2) ** 2
        for (begin, before), (end, after) in itertools.pairwise(readings)
    )
    return math.sqrt(sum(squares))
