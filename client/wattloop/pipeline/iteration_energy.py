"""Time and energy of the iterations under one directive, and of those at free clocks between them, cycle by cycle."""

from __future__ import annotations

import math
from collections.abc import Callable

from wattloop.pipeline.activities import MAX_PAUSE_SECONDS
from wattloop.pipeline.free_iterations import MAX_GROUPS as MAX_COMPARED_GROUPS
from wattloop.pipeline.free_iterations import ComparedCycles, FreeIterations, joined
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


class PlanComparison:
    """The comparison under one directive; not thread-safe.

    A cycle counts if all its measured iterations ran as the directive says: at the clocks of the plan, which the agent
    held, or at free clocks.

    Args:
        free: Which iterations run at free clocks.
        first_iteration: The first iteration of the directive.
        joules_between: Looks up the energy; called some time after the end of the window.
    """

    def __init__(self, free: FreeIterations, first_iteration: int, joules_between: JoulesBetween) -> None:
        self._free = free
        self._first_iteration = first_iteration
        self._joules_between = joules_between
        self._open: _Cycle | None = None
        self._ended: list[_Cycle] = []
        self._width = 1
        self._groups: dict[int, ComparedCycles] = {}
        self._last_end_seconds = -math.inf

    @property
    def groups(self) -> tuple[ComparedCycles, ...]:
        """The cycles that are complete and whose energy has been looked up."""
        return tuple(each for _, each in sorted(self._groups.items()))

    def add(self, record: IterationRecord) -> None:
        """Add an iteration of the directive."""
        part = self._free.part(record.number - self._first_iteration)
        cycle = self._open
        if cycle is None or cycle.number != part.cycle:
            self._end_cycle()
            cycle = self._open = _Cycle(part.cycle, self._joules_between)
            for means in (cycle.plan, cycle.free):
                means.skip(self._last_end_seconds)
        if not part.is_measured:
            cycle.plan.skip(record.end_seconds)
            cycle.free.skip(record.end_seconds)
        else:
            runs_as_directed = not record.clocks_megahertz if part.is_free else bool(record.clocks_megahertz)
            cycle.is_valid &= runs_as_directed and not record.interrupted
            (cycle.free if part.is_free else cycle.plan).add(record)
        self._last_end_seconds = record.end_seconds

    def collect(self, before_seconds: float = math.inf) -> None:
        """Look up the energy of what ended before a moment."""
        for cycle in (*self._ended, *([] if self._open is None else [self._open])):
            cycle.plan.collect(before_seconds)
            cycle.free.collect(before_seconds)
        while self._ended and self._ended[0].plan.is_collected and self._ended[0].free.is_collected:
            self._take(self._ended.pop(0))

    def _end_cycle(self) -> None:
        cycle, self._open = self._open, None
        if (
            cycle is not None
            and cycle.is_valid
            and (cycle.plan.count, cycle.free.count) == self._free.measured(cycle.number)
        ):
            cycle.plan.end()
            cycle.free.end()
            self._ended.append(cycle)

    def _take(self, cycle: _Cycle) -> None:
        plan, free = cycle.plan, cycle.free
        assert plan.period_seconds is not None
        assert free.period_seconds is not None
        has_energy = plan.all_joules_known and free.all_joules_known
        one = ComparedCycles(
            cycle.number,
            1,
            1,
            plan.period_seconds,
            free.period_seconds,
            plan.joules if has_energy else None,
            free.joules if has_energy else None,
        )
        while cycle.number // self._width >= MAX_COMPARED_GROUPS:
            self._width *= 2
        self._groups = joined([*self._groups.values(), one], self._width)


class _Cycle:
    """The measured iterations of one cycle."""

    def __init__(self, number: int, joules_between: JoulesBetween) -> None:
        self.number = number
        self.plan = IterationMeans(joules_between)
        self.free = IterationMeans(joules_between)
        self.is_valid = True
