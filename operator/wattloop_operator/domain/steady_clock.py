"""Since when the wall clock runs without a step, so that a step of it is not mistaken for elapsed time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

# Slewing, as NTP does it, changes the clocks' difference by at most 0.5 ms per second.
MAX_STEP_SECONDS = 5.0


class SteadyClock:
    """Compares the wall clock with the monotonic clock, which a suspended machine stops and nobody sets.

    Thread-safe.

    Args:
        clock: The time, with a time zone.
        monotonic: Monotonic seconds.

    Example:
        >>> from datetime import UTC, timedelta
        >>> noon, hours, seconds = datetime(2026, 3, 1, 12, tzinfo=UTC), [0], [0.0]
        >>> steady = SteadyClock(lambda: noon + timedelta(hours=hours[0], seconds=seconds[0]), lambda: seconds[0])
        >>> seconds[0] = 3600.0
        >>> f"{steady.since():%H:%M}"
        '12:00'
        >>> hours[0] = 8  # the machine was suspended for 8 hours
        >>> f"{steady.since():%H:%M}"
        '21:00'
    """

    def __init__(self, clock: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since = clock()
        self._offset = self._since.timestamp() - monotonic()

    def since(self) -> datetime:
        """Since when the wall clock has made no step: at most since this object was made."""
        with self._lock:
            now = self._clock()
            offset = now.timestamp() - self._monotonic()
            if abs(offset - self._offset) > MAX_STEP_SECONDS:
                self._since = now
            # The latest difference, so that slewing never adds up to a step.
            self._offset = offset
            return self._since
