"""Measures the iterations of a pipeline: decides what to measure, and collects it beside the training.

The training thread appends the record of each iteration to a queue. A thread of the meter joins the records
with the readings of the GPUs' counters, which the process's sampler reads.
"""

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from wattloop.energy_monitor.process_sampler import ProcessSampler, process_sampler
from wattloop.energy_monitor.sources import FirstAvailable
from wattloop.pipeline.clock_profiling import ClockResult, Profiling
from wattloop.pipeline.instruction_measurements import ProcessMeasurements
from wattloop.pipeline.iteration_energy import IterationMeans, PlanComparison
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import PLAN, PROFILE, Directive, RankReport
from wattloop.pipeline.plan_source import Recorder
from wattloop.threads import TaskThread

logger = logging.getLogger("wattloop")

COLLECT_SECONDS = 1.0
# Readings come every 67 ms, and the counter's step after a moment within 100 ms.
READ_SECONDS = 1.0
CLOSE_SECONDS = 5.0
# Iterations after a change of the directive that are not measured: GPUs and neighbours adapt.
WARM_UP_ITERATIONS = 1
MAX_CLOCK_DIFFERENCE_SECONDS = 1.0


class PipelineMeter:
    """An `Observer` that measures.

    Args:
        readings: The counters.
        uuids: The GPUs of the process.
        first_rank: Whether the rank is the first of its pipeline.
        now: The clock of the records and the readings.
        recorders: What writes the measurements.
    """

    def __init__(
        self,
        readings: ProcessSampler,
        uuids: Sequence[str],
        *,
        first_rank: bool,
        now: Callable[[], float] = time.monotonic,
        recorders: Sequence[Recorder] = (),
    ) -> None:
        self._now = now
        self._recorders = recorders
        self._joules_between = partial(readings.joules_between, uuids)
        self._lock = threading.Lock()
        self._records: deque[IterationRecord] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._measurements = ProcessMeasurements(
            [partial(readings.edges, uuid) for uuid in uuids], first_rank=first_rank
        )
        self._profiling: Profiling | None = None
        self._directive: Directive | None = None
        self._first_iteration = 0
        self._next_iteration = 0
        self._phase: tuple[int, int] | None = None
        self._means = IterationMeans(self._joules_between)
        self._comparison: PlanComparison | None = None
        self._thread = TaskThread(self._run, "wattloop-pipeline")

    def start(self) -> None:
        """Collect in a thread of its own from now on."""
        self._thread.start()

    def profiling_clock(self, directive: Directive, iteration: int) -> int | None:
        """See `Observer`."""
        known = self._profiling
        if known is None or known.number != directive.number:
            known = self._profiling = Profiling(directive)
        return known.clock(iteration)

    def iteration_done(self, record: IterationRecord) -> None:
        """See `Observer`."""
        self._records.append(record)

    def measured(self, report: RankReport) -> RankReport:
        """See `Observer`."""
        with self._lock:
            self._collect(self._now())
            return replace(
                report,
                measured_iterations=self._means.count,
                iteration_seconds=self._means.seconds,
                iteration_joules=self._means.joules,
                iteration_error_joules=self._means.joules_error,
                blocking_watts=self._blocking_watts(),
                measurements=self._measurements.measurements(),
                profiled=self._is_profiled(),
                compared=() if self._comparison is None else self._comparison.groups,
            )

    def close(self) -> None:
        """See `Observer`; waits for the counters' last steps, and takes all that is known."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        with self._lock:
            self._measurements.end_phase()
            self._collect(math.inf)
            for recorder in self._recorders:
                recorder.close(self._measurements.measurements(), self._blocking_watts())
            self._recorders = ()

    def _run(self) -> None:
        while not self._wake.wait(COLLECT_SECONDS):
            with self._lock:
                self._collect(self._now())
        if self._records or self._phase is not None:
            # The steps and readings after the last iteration.
            time.sleep(READ_SECONDS)

    def _blocking_watts(self) -> float | None:
        blocking = self._measurements.blocking()
        return None if blocking is None else blocking.value

    def _is_profiled(self) -> bool:
        directive, known = self._directive, self._profiling
        if directive is None or directive.mode != PROFILE or known is None or known.number != directive.number:
            return False
        return known.is_finished(self._next_iteration) and not self._measurements.is_collecting

    def _collect(self, now: float) -> None:
        while self._records:
            self._take(self._records.popleft())
        completed = self._measurements.collect(now)
        for result in completed:
            self._consider(result)
        self._means.collect(now - READ_SECONDS)
        if self._comparison is not None:
            self._comparison.collect(now - READ_SECONDS)
        for recorder in self._recorders:
            recorder.collect(now - READ_SECONDS, self._joules_between, self._measurements.measurements)
            if completed and now < math.inf:
                recorder.clock_measured(self._measurements.measurements(), self._blocking_watts())

    def _consider(self, result: ClockResult | None) -> None:
        """End the profile of this rank, if lower clocks than that of a phase are of no use."""
        profiling = self._profiling
        if (
            result is None
            or profiling is None
            or profiling.stopped
            or result.megahertz not in profiling.clocks_megahertz
        ):
            return
        profiling.add(result, self._measurements.blocking())
        if profiling.stopped:
            logger.info("this rank measures no lower clocks: %s", profiling.stopped)

    def _take(self, record: IterationRecord) -> None:
        if self._directive is None or record.directive.number != self._directive.number:
            self._begin_directive(record)
        self._next_iteration = record.number + 1
        if self._comparison is not None:
            self._comparison.add(record)
        phase = self._phase_of(record)
        if phase != self._phase:
            self._measurements.end_phase()
            if phase is not None:
                self._measurements.begin_phase()
            self._phase = phase
        if phase is not None:
            self._measurements.add(record)
        if phase is not None or (record.directive.mode != PROFILE and self._is_warmed_up(record)):
            self._means.add(record)
            for recorder in self._recorders if record.directive.mode != PROFILE else ():
                recorder.add(record)

    def _begin_directive(self, record: IterationRecord) -> None:
        directive = self._directive = record.directive
        self._first_iteration = record.number
        self._means = IterationMeans(self._joules_between)
        self._comparison = (
            None
            if directive.free is None or directive.mode != PLAN
            else PlanComparison(directive.free, directive.first_iteration or 0, self._joules_between)
        )

    def _is_warmed_up(self, record: IterationRecord) -> bool:
        """Whether an iteration is one of its directive: not the first one, and under a plan not at free clocks."""
        if record.number < self._first_iteration + WARM_UP_ITERATIONS:
            return False
        directive = record.directive
        if directive.mode != PLAN or directive.free is None:
            return True
        part = directive.free.part(record.number - (directive.first_iteration or 0))
        return part.is_measured and not part.is_free

    def _phase_of(self, record: IterationRecord) -> tuple[int, int] | None:
        """What an iteration belongs to: directive, and clock of a profile; None if its instructions do not count."""
        directive, clocks = record.directive, record.clocks_megahertz
        if not clocks or record.interrupted:
            return None
        if directive.knobs is not None:
            # The clock does not say how the instructions ran.
            return None
        if directive.mode == PLAN:
            return (directive.number, 0) if self._is_warmed_up(record) else None
        if directive.mode != PROFILE or self._profiling is None or self._profiling.number != directive.number:
            return None
        clock = self._profiling.counted_clock(record.number)
        # After an early end of its profile, the rank runs at its highest clock.
        return (directive.number, clock) if clock is not None and all(each == clock for each in clocks) else None


def started_meter(
    uuids: Sequence[str],
    variables: Mapping[str, str],
    recorders: Sequence[Recorder],
    *,
    first_rank: bool,
    is_reported: bool,
    now: Callable[[], float],
) -> PipelineMeter | None:
    """The meter of a rank, which has begun; None if nobody wants its measurements.

    Args:
        uuids: The GPUs of the process.
        variables: The environment variables of the process.
        recorders: What writes the measurements.
        first_rank: Whether the rank is the first of its pipeline.
        is_reported: Whether there is an operator.
        now: The clock of the instructions, in seconds.
    """
    if not uuids or not (is_reported or recorders):
        return None
    if abs(now() - time.monotonic()) > MAX_CLOCK_DIFFERENCE_SECONDS:
        logger.warning(
            "nothing is measured, and so nothing is planned from measurements: the instructions have another clock "
            "than the readings of the energy counters, which is the system's (CLOCK_MONOTONIC); let simulated GPUs "
            "run in real time, as wattloop run does for a job with power.frequencyPlan"
        )
        return None
    # The sampler ends with its last user, which the meter forgets at its end.
    user = Recorder()
    if variables is os.environ:
        sampler = process_sampler.get(FirstAvailable, user)
    else:
        # With other variables than the process's, one of its own.
        sampler = ProcessSampler(lambda: FirstAvailable(variables))
        sampler.add_user(user)
        sampler.start()
    sampler.wait_until_open()
    if sampler.problem:
        logger.warning("the energy of instructions is not measured: %s", sampler.problem)
    sampler.select(uuids)
    meter = PipelineMeter(sampler, uuids, first_rank=first_rank, recorders=(user, *recorders))
    meter.start()
    return meter
