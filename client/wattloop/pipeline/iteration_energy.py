"""Time and energy of the iterations under one directive."""

from __future__ import annotations

import math
from collections.abc import Callable

from wattloop.pipeline.activities import MAX_PAUSE_SECONDS
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.standard_errors import jackknife_variance, widening

# Shorter windows cost more look-ups than they are worth.
MIN_WINDOW_SECONDS = 2.0
# Groups of windows for the standard error; they are joined in pairs when there are more.
MAX_GROUPS = 32
MIN_GROUPS = 4

JoulesBetween = Callable[[float, float], float | None]
"""Energy of all GPUs of the process between two moments; None if it is not known."""


class IterationMeans:
    """Means over the iterations that were added; not thread-safe.

    Consecutive iterations are looked up together, as a window of energy with the short pauses between and before
    them. A window begins where the one before ends, so that the errors of the energy at its ends cancel in the sum
    over windows, and the sum is exact but for its own two ends.

    Args:
        joules_between: Looks up the energy; called some time after the end of the window.

    Example:
        >>> from array import array
        >>> from wattloop.pipeline.plan_messages import Directive
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
        self._total_period_seconds = 0.0
        self._is_ended = False
        # Begin, end and number of iterations of each window.
        self._windows: list[tuple[float, float, int]] = []
        self._total_joules = 0.0
        self._with_joules = 0
        # Energy and number of iterations of each group of consecutive windows.
        self._groups: list[tuple[float, int]] = []
        self._windows_per_group = 1
        self._windows_in_last = 0
        self._end_seconds = -math.inf
        self.count = 0

    @property
    def seconds(self) -> float | None:
        """Mean time; None without an iteration."""
        return self._total_seconds / self.count if self.count else None

    @property
    def period_seconds(self) -> float | None:
        """Mean time from the end of the iteration before, with short pauses; None without an iteration."""
        return self._total_period_seconds / self.count if self.count else None

    @property
    def is_collected(self) -> bool:
        """Whether the energy of all iterations has been looked up."""
        return not self._windows

    @property
    def all_joules_known(self) -> bool:
        """Whether `joules` is of all iterations."""
        return self._with_joules == self.count > 0

    @property
    def joules(self) -> float | None:
        """Mean energy of those iterations whose energy is known; None without any."""
        return self._total_joules / self._with_joules if self._with_joules else None

    @property
    def joules_error(self) -> float | None:
        """Standard error of `joules`; None for few iterations. ±1.96 of it are an interval of 95 %.

        It is that of a jackknife over the groups, which has the differences between iterations and the errors of the
        counter's readings, widened by Student's t.
        """
        groups = self._groups
        if len(groups) < MIN_GROUPS:
            return None
        joules, count = sum(group[0] for group in groups), sum(group[1] for group in groups)
        variance = jackknife_variance([(joules - own) / (count - iterations) for own, iterations in groups])
        return math.sqrt(variance) * widening(len(groups) - 1)

    def add(self, record: IterationRecord) -> None:
        """Add an iteration."""
        self.count += 1
        self._total_seconds += record.end_seconds - record.begin_seconds
        before, self._end_seconds = self._end_seconds, record.end_seconds
        continues = 0 <= record.begin_seconds - before <= MAX_PAUSE_SECONDS
        since = before if continues else record.begin_seconds
        self._total_period_seconds += record.end_seconds - since
        if self._windows:
            begin, end, count = self._windows[-1]
            if end == since and end - begin < MIN_WINDOW_SECONDS:
                self._windows[-1] = (begin, record.end_seconds, count + 1)
                return
        self._windows.append((since, record.end_seconds, 1))

    def skip(self, end_seconds: float) -> None:
        """Pass over an iteration that is not measured, at whose end the next one may continue."""
        self._end_seconds = end_seconds

    def end(self) -> None:
        """Take the last window as it is: no iteration follows."""
        self._is_ended = True

    def collect(self, before_seconds: float = math.inf) -> None:
        """Look up the energy of the windows that end before a moment, and are long enough or ended by another."""
        while self._windows:
            begin, end, count = self._windows[0]
            growing = not self._is_ended and len(self._windows) == 1 and end - begin < MIN_WINDOW_SECONDS
            if end > before_seconds or (growing and before_seconds < math.inf):
                return
            del self._windows[0]
            joules = self._joules_between(begin, end)
            if joules is not None:
                self._total_joules += joules
                self._with_joules += count
                self._add_to_group(joules, count)

    def _add_to_group(self, joules: float, count: int) -> None:
        groups = self._groups
        if groups and self._windows_in_last < self._windows_per_group:
            groups[-1] = (groups[-1][0] + joules, groups[-1][1] + count)
            self._windows_in_last += 1
            return
        if len(groups) == MAX_GROUPS:
            pairs = zip(groups[::2], groups[1::2], strict=True)
            self._groups = groups = [(one[0] + other[0], one[1] + other[1]) for one, other in pairs]
            self._windows_per_group *= 2
        groups.append((joules, count))
        self._windows_in_last = 1
