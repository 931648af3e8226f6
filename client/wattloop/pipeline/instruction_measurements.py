"""Time and energy of a rank's instructions, as its reports have them.

The rank's time is divided into phases: the measured iterations at one clock of a profile, or those under
one plan. A step of the counter that reaches into another phase, or into an iteration that is not measured,
does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from wattloop.energy.energy_timeline import CounterEdge
from wattloop.pipeline.activities import (
    BLOCKING,
    MAX_PAUSE_SECONDS,
    OTHER,
    Activity,
    ActivityHistory,
    Span,
    filled_spans,
    instruction_spans,
)
from wattloop.pipeline.clock_profiling import ClockResult
from wattloop.pipeline.energy_regression import PowerRegression, Powers, rows
from wattloop.pipeline.instruction_times import InstructionTimes
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import MAX_INSTRUCTION_SECONDS, MAX_MEASUREMENTS, InstructionMeasurement
from wattloop.pipeline.standard_errors import RegressionEstimate, combined, known, product, total

# After the end of a phase, the times of its last steps are taken as they are known.
SETTLED_SECONDS = 5.0


class Edges(Protocol):
    """The edges of a GPU's counter."""

    def __call__(self, first: int, *, final: bool = True) -> Sequence[CounterEdge]:
        """See `wattloop.energy.energy_timeline.EnergyTimeline.edges`."""


class ProcessMeasurements:
    """The measurements of one process; not thread-safe.

    Args:
        gpus: The edges of each GPU's counter.
        first_rank: Whether the rank is the first of its pipeline.
    """

    def __init__(self, gpus: Sequence[Edges], *, first_rank: bool) -> None:
        self._gpus = [_Gpu(edges) for edges in gpus]
        self._first_rank = first_rank
        self._times = InstructionTimes()
        # Of the complete phases together.
        self._powers: dict[Activity, RegressionEstimate] = {}
        self._open: list[_Phase] = []

    @property
    def is_collecting(self) -> bool:
        """Whether a phase is not complete yet."""
        return bool(self._open)

    def begin_phase(self) -> None:
        """Measure the next iterations separately."""
        if self._open:
            self._open[-1].ended = True
        self._open.append(_Phase(self._gpus))

    def add(self, record: IterationRecord) -> None:
        """Add a measured iteration to the current phase."""
        if not self._open or self._open[-1].ended:
            self.begin_phase()
        instructions = []
        for span in instruction_spans(record):
            assert span.activity is not None, "an instruction has one"
            low, high = self._times.bounds(span.activity)
            seconds = span.end_seconds - span.begin_seconds
            self._times.add(span.activity, seconds)
            instructions.append(span if low <= seconds <= high else span._replace(activity=None))
        self._open[-1].add(record, instructions, filled_spans(record, instructions, first_rank=self._first_rank))

    def end_phase(self) -> None:
        """Add no more iterations to the current phase."""
        if self._open:
            self._open[-1].ended = True

    def collect(self, now_seconds: float) -> list[ClockResult | None]:
        """Take the edges since the last call.

        Args:
            now_seconds: System monotonic clock; infinity takes all that is known, also of the current phase.

        Returns:
            For each phase that has become complete, energy and time of all instructions of an iteration; None if they
            are not known, or the phase has several clocks.
        """
        completed: list[ClockResult | None] = []
        while self._open:
            phase = self._open[0]
            settled = now_seconds > phase.end_seconds + SETTLED_SECONDS
            phase.collect(final=not (phase.ended and settled) and now_seconds < math.inf)
            if not (phase.ended and settled):
                break
            completed.append(phase.iteration(self._times))
            for activity, power in phase.powers().items():
                before = self._powers.get(activity)
                self._powers[activity] = power if before is None else combined([before, power])
            del self._open[0]
        return completed

    def blocking(self) -> RegressionEstimate | None:
        """Power of the GPUs while they wait, in watts; None if it is not known."""
        found = [power for powers in self.powers() for activity, power in powers.items() if activity.kind == BLOCKING]
        return known(combined(found)) if found else None

    def measurements(self) -> tuple[InstructionMeasurement, ...]:
        """All measurements so far, in the order in which the instructions came first."""
        all_powers = self.powers()
        found = []
        for activity in self._times.activities[:MAX_MEASUREMENTS]:
            time = self._times.time(activity)
            if not 0 < time.value <= MAX_INSTRUCTION_SECONDS:
                continue
            parts = [powers[activity] for powers in all_powers if activity in powers]
            power = known(combined(parts)) if parts else None
            energy = None if power is None or math.isinf(time.error) else product(power, time)
            found.append(
                InstructionMeasurement(
                    kind=activity.kind,
                    stage=activity.stage,
                    megahertz=activity.megahertz,
                    repetitions=self._times.repetitions(activity),
                    time_seconds=time.value,
                    time_error_seconds=time.error if math.isfinite(time.error) else None,
                    energy_joules=None if energy is None else energy.value,
                    energy_error_joules=None if energy is None else energy.error,
                )
            )
        return tuple(found)

    def powers(self) -> list[dict[Activity, RegressionEstimate]]:
        """Power of each activity, of all GPUs of the process, with errors of any size.

        Of the complete phases together, then of each phase that is not complete.
        """
        return [self._powers, *(phase.powers() for phase in self._open)]


class _Phase:
    """The iterations of one phase, and the regression of each GPU."""

    def __init__(self, gpus: Sequence[_Gpu]) -> None:
        self._gpus = gpus
        self._regressions = [PowerRegression() for _ in gpus]
        self._history = ActivityHistory()
        self._last: IterationRecord | None = None
        self._counts: dict[Activity, int] = {}
        self._iterations = 0
        self.ended = False

    @property
    def end_seconds(self) -> float:
        return self._history.end_seconds

    def add(self, record: IterationRecord, instructions: Sequence[Span], spans: Iterable[Span]) -> None:
        last, self._last = self._last, record
        if last is not None and last.number + 1 == record.number:
            pause = record.begin_seconds - last.end_seconds
            if 0 < pause <= MAX_PAUSE_SECONDS:
                clock = record.clocks_megahertz[0] if record.clocks_megahertz else 0
                self._history.add(Span(last.end_seconds, record.begin_seconds, Activity(OTHER, 0, clock)))
        for span in spans:
            self._history.add(span)
        for span in instructions:
            if span.activity is not None:
                self._counts[span.activity] = self._counts.get(span.activity, 0) + 1
        self._iterations += 1

    def collect(self, *, final: bool) -> None:
        reached = [
            gpu.collect(self._history, regression, final=final)
            for gpu, regression in zip(self._gpus, self._regressions, strict=True)
        ]
        if reached:
            self._history.forget_before(min(reached))

    def powers(self) -> dict[Activity, RegressionEstimate]:
        """Power of each activity, of all GPUs of the process, with errors of any size."""
        solved = self._solved()
        found: dict[Activity, RegressionEstimate] = {}
        for activity in solved[0].numbers if solved else ():
            power = total([each.power(activity) for each in solved])
            if power is not None:
                found[activity] = power
        return found

    def iteration(self, times: InstructionTimes) -> ClockResult | None:
        """Energy and time of all instructions of an iteration; None if not known, or at several clocks."""
        solved, clocks = self._solved(), {activity.megahertz for activity in self._counts}
        if len(clocks) != 1:
            return None
        seconds = {
            activity: times.time(activity).value * count / self._iterations for activity, count in self._counts.items()
        }
        joules = known(total([each.weighted(seconds) for each in solved]))
        if joules is None:
            return None
        return ClockResult(clocks.pop(), joules, sum(seconds.values()))

    def _solved(self) -> list[Powers]:
        """The powers of each GPU; none if one has too few rows."""
        solved = [powers for regression in self._regressions if (powers := regression.solved()) is not None]
        return solved if len(solved) == len(self._gpus) else []


class _Gpu:
    """The edges of one GPU, of which each phase takes its own."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._next = 0

    def collect(self, history: ActivityHistory, regression: PowerRegression, *, final: bool) -> float:
        """Add rows until the history's end; returns the moment before which the history is no longer needed."""
        edges = [edge for edge in self._edges(self._next, final=final) if edge.seconds <= history.end_seconds]
        for row in rows(edges, history):
            regression.add(row)
        if not edges:
            return -math.inf
        # The last edge begins the next row.
        self._next = edges[-1].number
        return edges[-1].seconds
