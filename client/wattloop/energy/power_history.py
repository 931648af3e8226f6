"""Power over time and its integral, in bounded memory."""

from __future__ import annotations

import bisect
from array import array


class PowerHistory:
    """Readings of power and their integral by the trapezoidal rule.

    Args:
        limit: The number of readings that are kept at least; the oldest are dropped.

    Example:
        >>> history = PowerHistory()
        >>> for second in range(4):
        ...     history.add(second, 100.0)
        >>> history.joules_at(2.5) - history.joules_at(0.5)
        200.0
    """

    def __init__(self, limit: int = 16384) -> None:
        self._limit = limit
        # Columns of numbers: as objects, they would take ten times the memory.
        self._moments = array("d")
        self._watts = array("d")
        self._joules = array("d")

    def __len__(self) -> int:
        return len(self._moments)

    def add(self, moment_seconds: float, watts: float) -> None:
        """Add a reading; one that is not later than the last is ignored."""
        joules = 0.0
        if self._moments:
            elapsed = moment_seconds - self._moments[-1]
            if elapsed <= 0:
                return
            joules = self._joules[-1] + elapsed * (self._watts[-1] + watts) / 2
        for column, value in ((self._moments, moment_seconds), (self._watts, watts), (self._joules, joules)):
            column.append(value)
            if len(column) >= 2 * self._limit:
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
        slope = (self._watts[after] - self._watts[before]) / (moments[after] - moments[before])
        return joules[before] + elapsed * (self._watts[before] + slope * elapsed / 2)

    def between(self, begin_seconds: float, end_seconds: float) -> list[tuple[float, float]]:
        """(seconds, watts) of the readings from the last before a moment to the first after another."""
        first = max(bisect.bisect_right(self._moments, begin_seconds) - 1, 0)
        last = bisect.bisect_left(self._moments, end_seconds) + 1
        return list(zip(self._moments[first:last], self._watts[first:last], strict=True))
