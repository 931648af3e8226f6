"""What power says of the time between two readings of a counter: how its energy was spread, what was used since."""

from __future__ import annotations

import bisect
import itertools
import math
from array import array
from typing import NamedTuple

# From Ampere on a GPU tells the mean of the last second: what it tells follows what it draws that much later.
AVERAGE_SECONDS = 1.0
# Of an account's past, a hundred seconds at 10 Hz; before them the counter's own readings must do.
POINTS_LIMIT = 1000


class Estimate(NamedTuple):
    """Energy by power alone, and how far that may be off."""

    millijoules: float
    uncertainty_millijoules: float


class PowerTrace:
    """Power over time and its integral, by the trapezoidal rule, bounded in memory.

    Example:
        >>> shape = PowerTrace()
        >>> for second in range(5):
        ...     shape.add(second, second, 100.0 if second < 3 else 300.0)
        >>> shape.since(1.0).millijoules
        600000.0
        >>> shape.share(0.0, 2.0, 4.0)
        0.2857142857142857
    """

    def __init__(self) -> None:
        # Columns of numbers: as objects, the points of a node's GPUs would take megabytes.
        self._moments = array("d")
        self._clocks = array("d")
        self._watts = array("d")
        self._joules = array("d")

    def add(self, moment_seconds: float, clock_seconds: float, watts: float) -> None:
        """Take a reading; readings come in order of time.

        Args:
            moment_seconds: The system's monotonic clock.
            clock_seconds: The clock that energy is integrated on; while it goes back nothing is used.
            watts: The reading.
        """
        joules = 0.0
        if self._moments:
            mean = (self._watts[-1] + watts) / 2
            joules = self._joules[-1] + max(clock_seconds - self._clocks[-1], 0.0) * mean
        values = (moment_seconds, clock_seconds, watts, joules)
        columns = (self._moments, self._clocks, self._watts, self._joules)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
            if len(column) >= 2 * POINTS_LIMIT:
                del column[:-POINTS_LIMIT]

    def since(self, begin_seconds: float, until_seconds: float = math.inf) -> Estimate:
        """The energy between two moments, as far as readings go."""
        if not self._moments or self._moments[-1] <= begin_seconds:
            return Estimate(0.0, 0.0)
        joules = self._joules_at(until_seconds) - self._joules_at(begin_seconds)
        return Estimate(joules * 1e3, self.uncertainty_millijoules(begin_seconds, until_seconds))

    def share(self, begin_seconds: float, moment_seconds: float, end_seconds: float) -> float | None:
        """Which part of the energy between two moments was used until one between them.

        None where power says no more of it than a straight line does: fewer than two readings lie between the ends.
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
        """How far energy by power may be off in a stretch of time.

        A change of power is seen as late as a mean of the last second shows it, so by all that power changed, once,
        however long the stretch is; and between two readings nobody knows when it came, so by half of that in each.
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
        return ((max(watts) - min(watts)) * AVERAGE_SECONDS + math.sqrt(squares)) * 1e3

    def readings(self, begin_seconds: float) -> list[tuple[float, float]]:
        """(clock, watts) of each reading since a moment, it included."""
        first = bisect.bisect_left(self._moments, begin_seconds)
        return list(zip(self._clocks[first:], self._watts[first:], strict=True))

    def _joules_at(self, moment_seconds: float) -> float:
        moments, joules = self._moments, self._joules
        after = bisect.bisect_right(moments, moment_seconds)
        if after == 0:
            return joules[0]
        if after == len(moments):
            return joules[-1]
        share = (moment_seconds - moments[after - 1]) / (moments[after] - moments[after - 1])
        return joules[after - 1] + (joules[after] - joules[after - 1]) * share
