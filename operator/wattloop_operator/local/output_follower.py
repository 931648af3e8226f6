"""Follows the training of an attempt that does not use the client: its output, and the GPUs of the run.

The runner itself is then the client: it holds the decided power limit or measures limits, reads the
energy counters, and reports the evaluations that the training prints.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from wattloop.errors import OperationError
from wattloop.gpus.process_gpus import given_to_process
from wattloop.run.held_gpus import ProcessGpus
from wattloop.threads import TaskThread
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.power_fields import Power
from wattloop_operator.api.reporting_source import ReportingSource
from wattloop_operator.domain.bounded_output import SlowPatternError
from wattloop_operator.domain.metric_rows import MetricReader, RowReader, reader_of
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.domain.training_output import Evaluation
from wattloop_operator.local.command import expanded
from wattloop_operator.local.output_file import OutputFile
from wattloop_operator.reconcile.attempt.limits_by_epoch import EpochEnd, LimitsByEpoch
from wattloop_operator.reconcile.attempt.ordered_limit import limits_to_order
from wattloop_operator.reconcile.attempt.report_effect import ObservedGpus, OutputReport
from wattloop_operator.reconcile.learning.power_profiles import best_limit
from wattloop_operator.reporting.interfaces import Observe

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
# Energy between two evaluations, for the cost limit.
GPU_REPORT_SECONDS = 2.0


class OutputFollower:
    """Reports on one attempt, from a thread, until it is finished.

    Args:
        power: How the job chooses its power limit.
        output: File with the output of its process.
        folder: The folder in which its process starts.
        agent_socket: The agent's socket; empty: the GPUs are not measured.
        variables: The environment variables of its process, which select the GPUs.
        show_reading: Called with the first evaluation that counts, as it was understood, and its line.
    """

    def __init__(
        self,
        recurrence: TrainingAttempt,
        power: Power,
        *,
        output: Path,
        folder: Path,
        agent_socket: str,
        variables: Mapping[str, str],
        observe: Observe,
        show_reading: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._recurrence = recurrence
        self._show_reading = show_reading
        self._observe = observe
        spec = recurrence.spec
        self._reader: MetricReader | None = None
        if spec.reporting.source in (ReportingSource.LOGS, ReportingSource.FILE):
            # A run has the processor to itself, so it does not wait; a pattern that is slow is given up here too.
            self._reader = reader_of(spec.reporting, spec.target, max_epochs=spec.max_epochs)
        self._rows = self._reader if isinstance(self._reader, RowReader) else None
        if self._rows is not None:
            output = folder / expanded(spec.reporting.path or "", variables)
        self._file = OutputFile(output, self._rows)
        self._gpus = ProcessGpus(agent_socket, select=lambda offered: given_to_process(offered, variables))
        self._limits = OutputLimits(recurrence, self._gpus, power)
        self._epochs = 0.0
        self._has_warned = self._has_shown = self._succeeded = False
        self._finishing = threading.Event()
        self._thread = TaskThread(self._run, f"follow-{recurrence.metadata.name}")

    def begin(self) -> None:
        """Read the GPUs and hold the power limit, before the process starts; then follow it."""
        self.begin_gpus()
        self._thread.start()

    def begin_gpus(self) -> None:
        """Read the GPUs and hold the power limit, or the first of those that are measured."""
        spec = self._recurrence.spec
        self._gpus.begin()
        if spec.profile_power_limits:
            self._limits.begin()
        elif spec.power_limit_watts is not None:
            self._gpus.hold(float(spec.power_limit_watts))

    def release(self) -> None:
        """Release the power limit, and end the connection to the agent."""
        self._gpus.end()

    def finish(self, *, succeeded: bool) -> None:
        """Read the rest of the output, after the process has ended, and release the GPUs.

        Args:
            succeeded: Whether it ended by itself, and well.
        """
        self._succeeded = succeeded
        self._finishing.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._report(OutputReport(0, gpus=self._observed_gpus()))
            waits = 0
            while not self._finishing.wait(POLL_SECONDS):
                waits += 1
                if not self.report_new_lines() and waits * POLL_SECONDS >= GPU_REPORT_SECONDS:
                    self._report(OutputReport(0, gpus=self._observed_gpus()))
                    waits = 0
            self._report_rest()
            self._report(OutputReport(self._file.offset + 1, gpus=self._observed_gpus(), finished=True))
        except Exception:  # the run goes on without the metric
            logger.exception("%s: unexpected failure while its output was read", self._recurrence.metadata.name)
        finally:
            self.release()

    def _report_rest(self) -> None:
        self._file.finish()
        self.report_new_lines()
        # The last row may be half written if the process was ended.
        self._report_evaluations(self._file.rest() if self._succeeded or self._rows is None else [])
        last = self._reader.at_end() if self._reader is not None and self._succeeded else None
        self._report_found([] if last is None else [(self._file.offset, last)])
        self._tell_what_was_read()
        if self._rows is not None and not self._rows.reading.first:
            why = self._file.problem() or self._rows.reading.unread_at_end
            if why and not self._has_warned:
                logger.warning("%s: %s", self._recurrence.metadata.name, why)

    def report_new_lines(self) -> bool:
        """Report each new evaluation; returns whether there was one."""
        found = False
        self._limits.polling()
        while lines := self._file.read():
            found |= self._report_evaluations(lines)
        self._tell_what_was_read()
        return found

    def _tell_what_was_read(self) -> None:
        if self._reader is None:
            return
        reading = self._reader.reading
        if not self._has_shown and reading.first:
            self._show_reading(reading.first)
            self._has_shown = True
        notice = "" if self._has_warned else reading.unread or reading.doubt
        if notice:
            logger.warning("%s: %s", self._recurrence.metadata.name, notice)
            self._has_warned = True

    def _report_evaluations(self, lines: Sequence[tuple[int, bytes]]) -> bool:
        return self._report_found(list(self._evaluations(lines)))

    def _report_found(self, evaluations: Sequence[tuple[int, Evaluation]]) -> bool:
        if evaluations:
            counted = self._epochs + len(evaluations)
            latest = evaluations[-1][1].epoch
            self._epochs = counted if latest is None else latest
            spec, metrics = self._recurrence.spec, [each.metric for _, each in evaluations]
            # The training may be ended for one of them.
            is_last = self._epochs >= spec.max_epochs or not all(map(math.isfinite, metrics))
            self._limits.epoch_ended(
                self._epochs, is_last=is_last or any(map(spec.target.run_target.reached_by, metrics))
            )
        gpus = self._observed_gpus() if evaluations else ObservedGpus()
        for place, (end, evaluation) in enumerate(evaluations, 1):
            is_followed = place < len(evaluations)
            self._report(OutputReport(end, evaluation.metric, evaluation.epoch, gpus=gpus, is_followed=is_followed))
        return bool(evaluations)

    def _evaluations(self, lines: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, Evaluation]]:
        for end, line in lines:
            if self._reader is None:
                return
            try:
                evaluation = self._reader.read(line)
            except SlowPatternError as error:
                logger.warning("%s: %s", self._recurrence.metadata.name, error)
                self._reader = None
                return
            if evaluation is not None:
                yield end, evaluation

    def _observed_gpus(self) -> ObservedGpus:
        gpus = self._gpus
        return ObservedGpus(
            gpus.energy(),
            gpus.product,
            gpus.max_power_limit_watts,
            gpus.limit_watts,
            gpus.refusal,
            self._limits.measurements,
        )

    def _report(self, seen: OutputReport) -> None:
        metadata = self._recurrence.metadata
        try:
            self._observe(metadata.namespace, metadata.name, seen)
        except OperationError as error:
            logger.warning("%s: a report was not stored: %s", metadata.name, error)


class OutputLimits:
    """Holds and measures the limits of one attempt. Call `polling` before its output is read, each time.

    Args:
        power: How the job chooses its limit.
    """

    def __init__(self, recurrence: TrainingAttempt, gpus: ProcessGpus, power: Power) -> None:
        self._spec = recurrence.spec
        self._gpus = gpus
        self._power = power
        self._limits: LimitsByEpoch | None = None
        self._is_deferred = False
        # When the output was read last, and when it is read now, by the clock of the GPUs.
        self._last_seconds: float | None = None
        self._now_seconds: float | None = None

    @property
    def measurements(self) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far."""
        return () if self._limits is None else self._limits.measurements

    def begin(self) -> None:
        """Hold the first limit, before the training starts."""
        allowed = self._gpus.allowed_watts
        if allowed is None:
            # No limit is allowed. The request fails, and the agent's error gives the reason.
            if self._gpus.count:
                self._gpus.hold(self._gpus.max_power_limit_watts / self._gpus.count)
            return
        self._limits = LimitsByEpoch(limits_to_order(math.ceil(allowed[0]), math.floor(allowed[1])))
        self._gpus.hold(float(self._limits.limit_watts))
        self.polling()

    def polling(self) -> None:
        """The output is read next."""
        if self._is_measuring:
            totals = self._gpus.totals()
            self._last_seconds = self._now_seconds
            self._now_seconds = None if totals is None else totals.time_seconds

    def epoch_ended(self, epoch: float, *, is_last: bool) -> None:
        """The output that was just read shows that this number of epochs has been run.

        After what may be the last one, the next limit is not held before another has ended: the attempt would have
        the name of a limit with which none of its epochs ran.
        """
        limits = self._limits
        if limits is not None and self._is_deferred:
            self._is_deferred = False
            limits.restart_window()
            self._hold_next(limits)
            return
        totals = self._gpus.totals() if self._is_measuring else None
        if limits is None or totals is None:
            return
        if self._gpus.was_interrupted():
            limits.restart_window()
        if self._last_seconds is None:
            return
        before = limits.limit_watts
        limits.add(EpochEnd(epoch, totals, totals.time_seconds - self._last_seconds))
        has_changed = limits.finished or limits.limit_watts != before
        self._is_deferred = has_changed and is_last
        if has_changed and not is_last:
            self._hold_next(limits)
            now = self._gpus.totals()
            # Without a reading, any time may have passed.
            limits.limit_set(math.inf if now is None else now.time_seconds - totals.time_seconds)

    def _hold_next(self, limits: LimitsByEpoch) -> None:
        if not limits.finished:
            self._gpus.hold(float(limits.limit_watts))
            return
        best = best_limit(self._power, self._spec.energy_weight_percent, limits.measurements, self._gpus.count)
        self._gpus.hold(best.power_limit_watts)

    @property
    def _is_measuring(self) -> bool:
        # `hold` has logged why a limit is refused.
        return self._limits is not None and not self._limits.finished and not self._gpus.refusal
