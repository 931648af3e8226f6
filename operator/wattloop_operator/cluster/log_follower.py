"""Follows the log of one container and reports the evaluations in it.

The position of a report is the time of its line, in nanoseconds. So a line that is read again, after
an interrupted connection or by another operator, changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wattloop.errors import OperationError
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import NotFoundError, RejectedError
from wattloop_operator.cluster.pod_logs import ContainerLog, LogLine, OpenLog, lines_of
from wattloop_operator.domain.training_output import BoundedOutputReader, Evaluation, SlowPatternError
from wattloop_operator.reconcile.attempt.output_report import OutputReport
from wattloop_operator.reporting.interfaces import (
    Observe,
    ProgressTooLargeError,
    TooManyRequestsError,
    UnknownRecurrenceError,
)

logger = logging.getLogger(__name__)

# Of one log. A log that grows faster is read with a delay, and nothing of it is lost: the kubelet waits.
MAX_BYTES_PER_SECOND = 1024 * 1024
BURST_BYTES = 8 * 1024 * 1024
# A line counts as at least so many bytes: to search even an empty one takes 10 µs of the only interpreter, so a
# flood of carriage returns would occupy the operator for seconds each second.
MIN_LINE_BYTES = 256
RETRY_SECONDS = 1.0
# One hour of failures of one report; then the next line is read.
MAX_TRIES = 3_600


@dataclass(frozen=True)
class Flow:
    """The time of a follower, which tests replace.

    Attributes:
        monotonic: Monotonic seconds.
        wait: Waits for some seconds; returns whether to stop.
    """

    monotonic: Callable[[], float]
    wait: Callable[[float], bool]


class LogFollower:
    """Reads one log to its end.

    Args:
        recurrence: The attempt.
        log: The container.
        position: Lines up to this time, in nanoseconds, are known.
        follow: Whether the container still runs.
        open_log: Opens the log.
        observe: Merges a report.
        flow: The time, and whether to stop.

    Attributes:
        position: Time of the last line read.
        complete: Whether the log was read to its end.
        missing: Whether there is no log.
        refusal: Why the log must not be read; empty if it may be.
        given_up: Why the rest of the log is not read, although it may be; empty if it is.
    """

    def __init__(
        self,
        recurrence: TrainingRecurrence,
        log: ContainerLog,
        position: int,
        *,
        follow: bool,
        open_log: OpenLog,
        observe: Observe,
        flow: Flow,
    ) -> None:
        self.log = log
        self.follows = follow
        self.position = position
        self.complete = self.missing = False
        self.refusal = self.given_up = ""
        self._recurrence = recurrence
        spec = recurrence.spec
        self._reader = BoundedOutputReader(spec.reporting, spec.target, flow.monotonic, time.thread_time)
        self._open_log = open_log
        self._observe = observe
        self._flow = flow
        self._bytes = float(BURST_BYTES)
        self._counted_at = flow.monotonic()

    def run(self) -> None:
        """Read until the end of the log, an error, or a stop."""
        known = self.position
        try:
            for line in lines_of(self._limited()):
                if line.time_nanoseconds > known:
                    self._read(line)
            self.complete = not self._flow.wait(0)
        except NotFoundError:
            self.missing = True
        except SlowPatternError as error:
            self.given_up = str(error)
        except RejectedError as error:
            self.refusal = str(error)
        except OperationError as error:
            logger.debug("%s", error)

    def _limited(self) -> Iterator[bytes]:
        """The chunks of the log, at a bounded rate."""
        for chunk in self._open_log(self.log, self.position, self.follows):
            now = self._flow.monotonic()
            self._bytes = min(self._bytes + (now - self._counted_at) * MAX_BYTES_PER_SECOND, BURST_BYTES) - len(chunk)
            self._counted_at = now
            if self._flow.wait(max(-self._bytes / MAX_BYTES_PER_SECOND, self._reader.wait_seconds, 0.0)):
                return
            yield chunk

    def _read(self, line: LogLine) -> None:
        for text in line.text.split(b"\r"):
            self._bytes -= max(MIN_LINE_BYTES - len(text), 0)
            evaluation = self._reader.read(text)
            if evaluation is not None:
                self.position = max(self.position + 1, line.time_nanoseconds)
                self._report(evaluation)

    def _report(self, evaluation: Evaluation) -> None:
        metadata = self._recurrence.metadata
        seen = OutputReport(self.position, evaluation.metric, evaluation.epoch)
        for _ in range(MAX_TRIES):
            try:
                self._observe(metadata.namespace, metadata.name, seen)
            except UnknownRecurrenceError:
                return
            except (OperationError, TooManyRequestsError) as error:
                logger.warning("%s/%s: an evaluation waits: %s", metadata.namespace, metadata.name, error)
            except ProgressTooLargeError as error:
                logger.warning("%s/%s: an evaluation was dropped: %s", metadata.namespace, metadata.name, error)
                return
            else:
                return
            if self._flow.wait(RETRY_SECONDS):
                return


def stoppable_flow(monotonic: Callable[[], float], stopping: threading.Event) -> Flow:
    """The real time, until this event is set."""
    return Flow(monotonic, stopping.wait)
