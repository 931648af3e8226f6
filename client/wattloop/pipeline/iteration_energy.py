"""Time and energy of the iterations under one directive."""

from __future__ import annotations

import math
from collections.abc import Callable

from wattloop.pipeline.activities import MAX_PAUSE_SECONDS
from wattloop.pipeline.iteration_record import IterationRecord

# Shorter windows cost more look-ups than they are worth.
MIN_WINDOW_SECONDS = 2.0

JoulesBetween = Callable[[float, float], float | None]
"""Energy of all GPUs of the process between two moments; None if it is not known."""


class IterationMeans:
    """Means over the iterations that were added; not thread-safe.

    Consecutive iterations are looked up together, as a window of energy with the short pauses between them.

    Args:
        joules_between: Looks up the energy; called some time after the end of the window.

    Example:
        >>> from array import array
        >>> from wattloop.pipeline.messages import Directive
        >>> means = IterationMeans(lambda begin, end: 300 * (end - begin))
        >>> for number in range(4):
        ...     means.add(IterationRecord(number, Directive(), (), (), number, number + 1.0, array("d")))
        >>> means.collect(10.0)
        >>> means.count, means.seconds, means.joules
        (4, 1.0, 300.0)
    """

    def __init__(self, joules_between: JoulesBetween) -> None:
        self._joules_between = joules_between
        self._total_seconds = 0.0
        # Begin, end and number of iterations of each window.
        self._windows: list[tuple[float, float, int]] = []
        self._total_joules = 0.0
        self._with_joules = 0
        self.count = 0

    @property
    def seconds(self) -> float | None:
        """Mean time; None without an iteration."""
        return self._total_seconds / self.count if self.count else None

    @property
    def joules(self) -> float | None:
        """Mean energy of those iterations whose energy is known; None without any."""
        return self._total_joules / self._with_joules if self._with_joules else None

    def add(self, record: IterationRecord) -> None:
        """Add an iteration."""
        self.count += 1
        self._total_seconds += record.end_seconds - record.begin_seconds
        if self._windows:
            begin, end, count = self._windows[-1]
            if 0 <= record.begin_seconds - end <= MAX_PAUSE_SECONDS and end - begin < MIN_WINDOW_SECONDS:
                self._windows[-1] = (begin, record.end_seconds, count + 1)
                return
        self._windows.append((record.begin_seconds, record.end_seconds, 1))

    def collect(self, before_seconds: float = math.inf) -> None:
        """Look up the energy of the windows that end before a moment, and are long enough or ended by another."""
        while self._windows:
            begin, end, count = self._windows[0]
            growing = len(self._windows) == 1 and end - begin < MIN_WINDOW_SECONDS
            if end > before_seconds or (growing and before_seconds < math.inf):
                return
            del self._windows[0]
            joules = self._joules_between(begin, end)
            if joules is not None:
                self._total_joules += joules
                self._with_joules += count
