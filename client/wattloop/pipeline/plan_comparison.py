"""Measures iterations under a plan and at free clocks, cycle by cycle."""

from __future__ import annotations

import math

from wattloop.pipeline.free_iterations import MAX_GROUPS, ComparedCycles, FreeIterations, joined
from wattloop.pipeline.iteration_energy import IterationMeans, JoulesBetween
from wattloop.pipeline.iteration_record import IterationRecord


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
        while cycle.number // self._width >= MAX_GROUPS:
            self._width *= 2
        self._groups = joined([*self._groups.values(), one], self._width)


class _Cycle:
    """The measured iterations of one cycle."""

    def __init__(self, number: int, joules_between: JoulesBetween) -> None:
        self.number = number
        self.plan = IterationMeans(joules_between)
        self.free = IterationMeans(joules_between)
        self.is_valid = True
