"""When a training that has nothing to report must still show the operator that it makes progress."""

from __future__ import annotations

import time
from collections.abc import Callable

# A report may be lost, and the next one may have to wait for the backoff after a failure.
REPORTS_PER_DEADLINE = 4


class Heartbeat:
    """Times the reports that show progress.

    Only the training's own steps ask whether one is due. A thread would report for a training that hangs.

    Args:
        deadline_seconds: Seconds of silence after which the operator ends the attempt; None: never.
        clock: Monotonic seconds.

    Example:
        >>> seconds = [0.0]
        >>> heartbeat = Heartbeat(600.0, lambda: seconds[0])
        >>> seconds[0] = 149.0
        >>> heartbeat.is_due()
        False
        >>> seconds[0] = 150.0
        >>> heartbeat.is_due()
        True
        >>> heartbeat.reported()
        >>> heartbeat.is_due()
        False
    """

    def __init__(self, deadline_seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = None if deadline_seconds is None else deadline_seconds / REPORTS_PER_DEADLINE
        self._clock = clock
        self._reported_at = clock()

    def is_due(self) -> bool:
        """Whether a quarter of the deadline has passed since the last report. Cheap."""
        return self._interval_seconds is not None and self._clock() - self._reported_at >= self._interval_seconds

    def reported(self) -> None:
        """A report was sent, or tried."""
        self._reported_at = self._clock()
