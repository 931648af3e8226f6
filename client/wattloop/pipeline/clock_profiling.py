"""Which clock to measure at which iteration of a profile, and when a rank needs no lower one.

docs/internals/pipeline-measurement.md has the reasons.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from wattloop.errors import UsageError
from wattloop.pipeline.plan_messages import Directive
from wattloop.pipeline.standard_errors import NORMAL_95, RegressionEstimate

# A later run measures so many again, the highest ones, if no rank could tell its power while it waits.
CLOCKS_OF_BLOCKING_POWER = 2


def spaced_clocks(table_megahertz: Collection[int], count: int) -> tuple[int, ...]:
    """At most `count` clocks of a table, evenly spaced, with the highest and the lowest; highest first.

    Raises:
        UsageError: The table is empty, or fewer than 2 clocks are to be chosen.

    Example:
        >>> spaced_clocks(range(210, 1411, 15), 5)
        (1410, 1110, 810, 510, 210)
    """
    table = sorted(set(table_megahertz), reverse=True)
    if not table or count < 2:
        raise UsageError(
            f"found {len(table)} clocks and a count of {count}, expected at least 1 clock and a count of 2"
        )
    if len(table) <= count:
        return tuple(table)
    return tuple(table[round(index * (len(table) - 1) / (count - 1))] for index in range(count))


def clocks_left(
    clocks_megahertz: Sequence[int],
    instructions: Collection[tuple[str, int]],
    measured: Mapping[int, Collection[tuple[str, int]]],
) -> tuple[int, ...]:
    """The clocks that a profile lacks, in the same order; with them it resumes in a later process.

    Args:
        clocks_megahertz: All clocks to measure.
        instructions: Kind and stage of the instructions to measure.
        measured: Those of each clock whose time and energy are known.

    Example:
        >>> clocks_left((1410, 1200, 990), {("forward", 0)}, {1410: {("forward", 0)}, 1200: set()})
        (1200, 990)
    """
    needed = set(instructions)
    return tuple(clock for clock in clocks_megahertz if not needed <= set(measured.get(clock, ())))


@dataclass(frozen=True)
class ClockResult:
    """All instructions of an iteration at one clock.

    Attributes:
        megahertz: The clock.
        joules: Their energy.
        busy_seconds: Their time.
    """

    megahertz: int
    joules: RegressionEstimate
    busy_seconds: float


class Profiling:
    """A rank's progress through a profile.

    Args:
        directive: The clocks in the order in which they are measured, the first iteration, and the iterations at
            each clock.

    Attributes:
        number: Number of the directive.
        clocks_megahertz: The clocks.
        stopped: Why the rank measures no more clocks before the end; empty while it does.

    Example:
        >>> measure = Directive(clocks_megahertz=(1410, 1200), first_iteration=10, iterations_per_clock=3)
        >>> profiling = Profiling(measure)
        >>> [profiling.clock(iteration) for iteration in (9, 10, 14, 15, 20)]
        [None, 1410, 1410, 1200, None]
        >>> profiling.is_measured(11), profiling.is_measured(12), profiling.is_finished(20)
        (False, True, True)
    """

    def __init__(self, directive: Directive) -> None:
        self.number = directive.number
        self.clocks_megahertz = directive.clocks_megahertz
        self.stopped = ""
        self._first_iteration = directive.first_iteration or 0
        self._warm_up_iterations = directive.warm_up_iterations
        self._length = directive.warm_up_iterations + directive.iterations_per_clock
        self._results: dict[int, ClockResult] = {}

    def clock(self, iteration: int) -> int | None:
        """The clock to hold during an iteration; None outside of the profile, at free clocks."""
        scheduled = self._scheduled_clock(iteration)
        return self.clocks_megahertz[0] if scheduled is not None and self.stopped else scheduled

    def counted_clock(self, iteration: int) -> int | None:
        """The clock at which an iteration counts, if it ran at that; None outside of the profile, and for a warm-up."""
        within = (iteration - self._first_iteration) % self._length
        return self._scheduled_clock(iteration) if within >= self._warm_up_iterations else None

    def is_measured(self, iteration: int) -> bool:
        """Whether to measure an iteration."""
        return not self.stopped and self.counted_clock(iteration) is not None

    def is_finished(self, iteration: int) -> bool:
        """Whether the rank is through before an iteration. It then still follows the schedule until its end."""
        return bool(self.stopped) or iteration >= self._first_iteration + self._length * len(self.clocks_megahertz)

    def _scheduled_clock(self, iteration: int) -> int | None:
        position = (iteration - self._first_iteration) // self._length
        return self.clocks_megahertz[position] if 0 <= position < len(self.clocks_megahertz) else None

    def add(self, result: ClockResult, blocking: RegressionEstimate | None) -> None:
        """Add what was measured at a clock, and stop if lower clocks are of no use.

        Args:
            result: Energy and time at the clock; a later result of the same clock replaces it.
            blocking: Blocking power, in watts; None if it is not known, and then the energy alone counts.
        """
        self._results[result.megahertz] = result
        best = min(self._results.values(), key=lambda each: _effective_joules(each, blocking))
        if result.megahertz < best.megahertz and _has_risen(best, result, blocking):
            self.stopped = (
                f"at {result.megahertz} MHz the instructions of an iteration take {result.joules.value:.4g} J in "
                f"{result.busy_seconds:.4g} s, at {best.megahertz} MHz {best.joules.value:.4g} J in "
                f"{best.busy_seconds:.4g} s, so lower clocks save nothing"
            )


def _effective_joules(result: ClockResult, blocking: RegressionEstimate | None) -> float:
    return result.joules.value - (0.0 if blocking is None else blocking.value) * result.busy_seconds


def _has_risen(before: ClockResult, after: ClockResult, blocking: RegressionEstimate | None) -> bool:
    """Whether the effective energy has risen beyond its error."""
    rise = _effective_joules(after, blocking) - _effective_joules(before, blocking)
    shared = 0.0 if blocking is None else blocking.error * (after.busy_seconds - before.busy_seconds)
    return rise > NORMAL_95 * math.hypot(before.joules.error, after.joules.error, shared)
