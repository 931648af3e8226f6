"""The log of a container as a stream of lines with their times, and the evaluations in it.

The API server forwards the kubelet's log. A stream ends when the container has ended, or with its
connection; a further stream continues at the time of the last line. A report names the container, and its position
is the time of its line, in nanoseconds, or one more than the position before it if the node's clock was set back. So
a line that is read again, after an interrupted connection or by another operator, changes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime

from wattloop.errors import OperationError
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import PODS, NotFoundError, RejectedError
from wattloop_operator.cluster.api_transport import HttpTransport, Request, StatusError
from wattloop_operator.domain.bounded_output import BoundedOutputReader, SlowPatternError
from wattloop_operator.domain.training_output import Evaluation
from wattloop_operator.reconcile.attempt.report_effect import OutputReport
from wattloop_operator.reporting.interfaces import (
    Observe,
    ProgressTooLargeError,
    TooManyRequestsError,
    UnknownRecurrenceError,
)

# A training may print nothing for long. Then the stream is opened again.
SILENCE_SECONDS = 300.0
CHUNK_BYTES = 64 * 1024
NANOSECONDS = 1_000_000_000
TIMESTAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


@dataclass(frozen=True)
class ContainerLog:
    """A container whose log is read.

    Attributes:
        process: See `container_process`.
    """

    namespace: str
    pod: str
    container: str
    process: str


OpenLog = Callable[[ContainerLog, int, bool], Iterator[bytes]]
"""Opens a log, from a time in nanoseconds on, and follows it or not; returns its chunks.

Raises NotFoundError if there is no pod or no log, RejectedError if the operator may not read it, and
OperationError, also while chunks are read, if the connection fails."""


class ClusterLogs:
    """Reads logs through the API server. Thread-safe."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport

    def open(self, log: ContainerLog, since_nanoseconds: int, follow: bool) -> Iterator[bytes]:
        """See `OpenLog`."""
        query = {"container": log.container, "timestamps": "true", "follow": str(follow).lower()}
        if since_nanoseconds:
            # Whole seconds: the kubelet sends some lines again, which the reader skips.
            since = datetime.fromtimestamp(since_nanoseconds // NANOSECONDS, UTC)
            query["sinceTime"] = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        request = Request("GET", PODS.path(log.namespace, log.pod, "log"), query, accept="*/*")
        try:
            return self._transport.watch(request, SILENCE_SECONDS).chunks()
        except StatusError as error:
            if error.status in (400, 404):
                # 400: the container has not started yet, or its log is gone.
                raise NotFoundError(error.message) from error
            raise (RejectedError if error.status == 403 else OperationError)(str(error)) from error


def lines_of(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    r"""The lines of a log in the kubelet's form, with their times in nanoseconds; a line without a time is skipped.

    A carriage return ends a line, too, of the same time. Of what is long between two line feeds the beginning and the
    end are kept, between carriage returns: a progress bar is full at the end.

    Example:
        >>> list(lines_of(iter([b"1970-01-01T00:00:01.5Z a", b"=1\nno time\n1970-01-01T00:00:02Z b=2\rc"])))
        [(1500000000, b'a=1'), (2000000000, b'b=2'), (2000000000, b'c')]
    """
    part, is_cut = b"", False
    for chunk in chunks:
        *complete, last = chunk.split(b"\n")
        for piece in complete:
            yield from _line(_bounded(part + piece, is_cut=is_cut))
            part, is_cut = b"", False
        part += last
        if len(part) > 2 * CHUNK_BYTES:
            part, is_cut = part[:CHUNK_BYTES] + part[-CHUNK_BYTES:], True
    yield from _line(_bounded(part, is_cut=is_cut))


def _bounded(line: bytes, *, is_cut: bool) -> bytes:
    """The line; the beginning and the end of a long one, without the texts that are or were cut between them."""
    if not is_cut and len(line) <= 2 * CHUNK_BYTES:
        return line
    begin, end = line[:CHUNK_BYTES], line[-CHUNK_BYTES:]
    whole = begin.rfind(b"\r")
    return (begin if whole < 0 else begin[:whole]) + b"\r" + end.partition(b"\r")[2]


def _line(line: bytes) -> Iterator[tuple[int, bytes]]:
    match = TIMESTAMP.match(line)
    if match is None:
        return
    try:
        seconds = round(datetime.fromisoformat((match[1] + match[3]).decode("ascii")).timestamp())
    except (ValueError, OverflowError):
        # No date of the calendar.
        return
    time = seconds * NANOSECONDS + int((match[2] or b"0").ljust(9, b"0"))
    yield from ((time, text) for text in line[match.end() :].split(b"\r"))


logger = logging.getLogger(__name__)

GAP = (
    "the kubelet has rotated lines away that this operator has not read, and the output has no epochs: an evaluation "
    "in them is in none; print the epoch with the metric, or let the kubelet keep more (containerLogMaxSize)"
)

# Of one log. A log that grows faster is read with a delay, up to what the kubelet keeps of it.
MAX_BYTES_PER_SECOND = 1024 * 1024
BURST_BYTES = 8 * 1024 * 1024
# A line counts as at least so many bytes: to search even an empty one takes 10 µs of the only interpreter, so a
# flood of carriage returns would occupy the operator for seconds each second.
MIN_LINE_BYTES = 256
RETRY_SECONDS = 1.0
# One hour of failures of one report; then the next line is read.
MAX_TRIES = 3_600


@dataclass(eq=False)
class LogFollower:
    """Reads one log to its end.

    The reader knows what the lines before mean, such as that the script counts epochs from 0. So it is given the log
    from its beginning, by a follower alone or by several one after another, and the evaluations that are known already
    are not reported again.

    Attributes:
        reader: Reads its lines; that of the follower before if the log was interrupted.
        position: Time of the last evaluation, in nanoseconds; at first of the last one that is known.
        read_until: Time of the last line that was given to the reader.
        follows: Whether the container still runs.
        succeeded: Whether the container has ended, and well.
        open_log: Opens the log.
        observe: Merges a report.
        monotonic: Monotonic seconds.
        wait: Waits for some seconds; returns whether to stop.
        complete: Whether the log was read to its end.
        missing: Whether there is no log.
        refusal: Why the log must not be read; empty if it may be.
        given_up: Why the rest of the log is not read, although it may be; empty if it is.
        gap: What may be missing in the epochs that have counted; empty if nothing is.
    """

    recurrence: TrainingRecurrence
    log: ContainerLog
    reader: BoundedOutputReader
    _: KW_ONLY
    position: int
    read_until: int = 0
    follows: bool
    succeeded: bool = False
    open_log: OpenLog
    observe: Observe
    monotonic: Callable[[], float]
    wait: Callable[[float], bool]
    complete: bool = False
    missing: bool = False
    refusal: str = ""
    given_up: str = ""
    gap: str = ""

    def __post_init__(self) -> None:
        self._is_first_line, self._has_lost_lines = True, False
        self._bytes = float(BURST_BYTES)
        self._counted_at = self.monotonic()

    def run(self) -> None:
        """Read until the end of the log, an error, or a stop."""
        known, read = self.position, self.read_until
        try:
            for time, text in lines_of(self._limited()):
                # A log that is opened again begins at the last line that was read, or before.
                self._has_lost_lines |= self._is_first_line and 0 < (read or known) < time
                self._is_first_line = False
                if time > read:
                    self._bytes -= max(MIN_LINE_BYTES - len(text), 0)
                    evaluation = self.reader.read(text)
                    self._count(evaluation if time > known else None, time)
                    self.read_until = time
            self.complete = not self.wait(0)
            if self.complete and self.succeeded:
                self._count(self.reader.at_end(), self.read_until)
        except NotFoundError:
            self.missing = True
        except SlowPatternError as error:
            self.given_up = str(error)
        except RejectedError as error:
            self.refusal = str(error)
        except OperationError as error:
            logger.debug("%s", error)

    def _limited(self) -> Iterator[bytes]:
        for chunk in self.open_log(self.log, self.read_until, self.follows):
            now = self.monotonic()
            self._bytes = min(self._bytes + (now - self._counted_at) * MAX_BYTES_PER_SECOND, BURST_BYTES) - len(chunk)
            self._counted_at = now
            if self.wait(max(-self._bytes / MAX_BYTES_PER_SECOND, self.reader.wait_seconds, 0.0)):
                return
            yield chunk

    def _count(self, evaluation: Evaluation | None, time_nanoseconds: int) -> None:
        if evaluation is not None:
            if self._has_lost_lines and evaluation.epoch is None:
                self.gap = GAP
            self.position = max(self.position + 1, time_nanoseconds)
            self._report(evaluation)

    def _report(self, evaluation: Evaluation) -> None:
        metadata = self.recurrence.metadata
        seen = OutputReport(
            self.position,
            evaluation.metric,
            evaluation.epoch,
            process=self.log.process,
            counts_from_0=self.reader.reading.counts_from_0,
        )
        for _ in range(MAX_TRIES):
            try:
                self.observe(metadata.namespace, metadata.name, seen)
            except UnknownRecurrenceError:
                return
            except (OperationError, TooManyRequestsError) as error:
                logger.warning("%s/%s: an evaluation waits: %s", metadata.namespace, metadata.name, error)
            except ProgressTooLargeError as error:
                logger.warning("%s/%s: an evaluation was dropped: %s", metadata.namespace, metadata.name, error)
                return
            else:
                return
            if self.wait(RETRY_SECONDS):
                return
