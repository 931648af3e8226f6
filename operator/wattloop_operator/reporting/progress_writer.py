"""Reports become progress, and progress is written at most once an interval for each recurrence.

Between two writes reports are merged in memory. A report that makes the training stop, reaches the target or is the
last one is written before it is answered. All others are written within the interval. What a process that is killed had
not written, the next report says again, since reports are cumulative.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from wattloop.errors import OperationError
from wattloop.messages import Report
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reporting.interfaces import (
    ProgressStore,
    ProgressTooLargeError,
    TooManyRequestsError,
    UnknownRecurrenceError,
)

logger = logging.getLogger(__name__)

MAX_TRIES = 10
# Far more than one recurrence's limit of reports lets pass in an interval, so that memory is bounded by it.
MAX_WAITING_REPORTS = 2_048
POLL_SECONDS = 0.25

Key = tuple[str, str]
Merge = Callable[[TrainingRecurrence, Report], Progress]


@dataclass
class _Attempt:
    """What is known of one recurrence between two writes.

    Attributes:
        lock: Held by the thread that changes it.
        users: Threads that hold or wait for the lock.
        known: The recurrence as it was read last, with the progress that waits to be written; None: not known.
        waiting: Reports that `known` includes and that are not written.
        written_at: When it was written last.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    known: TrainingRecurrence | None = None
    waiting: list[Report] = field(default_factory=list)
    written_at: float = -float("inf")


class ProgressWriter:
    """Merges reports and writes progress. Safe to use from several threads.

    Args:
        progress_store: Where progress is kept.
        merge: The progress of a recurrence once a report is taken in.
        clock: Monotonic seconds.
        interval_seconds: The shortest time between two writes of one recurrence; 0: every report is written.
    """

    def __init__(
        self, progress_store: ProgressStore, merge: Merge, clock: Callable[[], float], interval_seconds: float = 0.0
    ) -> None:
        self._progress_store = progress_store
        self._merge = merge
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._attempts: dict[Key, _Attempt] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def take(self, namespace: str, name: str, report: Report) -> TrainingRecurrence:
        """Take in a report; returns the recurrence with it.

        Raises:
            UnknownRecurrenceError: There is no such recurrence.
            TooManyRequestsError: Too many reports of this recurrence wait to be written.
            ProgressTooLargeError: The progress with it has too many bytes.
            OperationError: It could not be kept now; the report may be sent again.
        """
        key = (namespace, name)
        with self._held(key) as attempt:
            known = attempt.known
            if known is None or self._is_due(attempt):
                return self._write(key, attempt, report)
            merged = _with(known, self._merge(known, report))
            if merged == known:
                return known
            if _is_urgent(known, merged):
                return self._write(key, attempt, report)
            if len(attempt.waiting) >= MAX_WAITING_REPORTS:
                raise TooManyRequestsError(f"recurrence {namespace}/{name}", self._interval_seconds)
            attempt.waiting.append(report)
            attempt.known = merged
            return merged

    def write_due(self, *, everything: bool = False) -> None:
        """Write what has waited for an interval, and forget recurrences of which nothing waits.

        Args:
            everything: Write whatever waits, as a process does before it ends.
        """
        with self._lock:
            keys = list(self._attempts)
        for key in keys:
            with self._held(key) as attempt:
                if attempt.waiting and (everything or self._is_due(attempt)):
                    self._write_waiting(key, attempt)

    def _write_waiting(self, key: Key, attempt: _Attempt) -> None:
        try:
            self._write(key, attempt)
        except UnknownRecurrenceError:
            # It is deleted, and its reports with it.
            attempt.waiting.clear()
        except ProgressTooLargeError as error:
            attempt.waiting.clear()
            logger.warning("reports of %s/%s are left out: %s", *key, error)
        except OperationError as error:
            # The reports still wait; they are tried again after an interval, or with the next report.
            attempt.written_at = self._clock()
            logger.warning("the progress of %s/%s is not written yet: %s", *key, error)

    def _write(self, key: Key, attempt: _Attempt, *further: Report) -> TrainingRecurrence:
        """Merge what waits, and further reports, into the recurrence as it is now, and write it."""
        attempt.known = None
        for _ in range(MAX_TRIES):
            recurrence = self._progress_store.read(*key)
            if recurrence is None:
                raise UnknownRecurrenceError(f"there is no TrainingRecurrence {key[0]}/{key[1]}")
            merged = recurrence
            for report in (*attempt.waiting, *further):
                merged = _with(merged, self._merge(merged, report))
            if merged != recurrence:
                # Also of an attempt to write that fails: the API server has had the request.
                attempt.written_at = self._clock()
                try:
                    self._progress_store.write(recurrence, merged.status.progress or Progress())
                except StaleSnapshotError:
                    continue
            attempt.waiting.clear()
            attempt.known = merged
            return merged
        raise OperationError(f"{key[0]}/{key[1]} changes faster than its report can be written; send the report again")

    def _is_due(self, attempt: _Attempt) -> bool:
        return self._clock() - attempt.written_at >= self._interval_seconds

    @contextlib.contextmanager
    def _held(self, key: Key) -> Iterator[_Attempt]:
        with self._lock:
            attempt = self._attempts.setdefault(key, _Attempt())
            attempt.users += 1
        try:
            with attempt.lock:
                yield attempt
        finally:
            with self._lock:
                attempt.users -= 1
                if not attempt.users and not attempt.waiting and self._is_due(attempt):
                    self._attempts.pop(key, None)


class ProgressWriterThread:
    """A thread that writes what is due. Used as a context manager; at the end whatever waits is written.

    Args:
        writer: What waits.
    """

    def __init__(self, writer: ProgressWriter) -> None:
        self._writer = writer
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="progress-writer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._writer.write_due(everything=True)

    def _work(self) -> None:
        while not self._ending.wait(POLL_SECONDS):
            try:
                self._writer.write_due()
            except Exception:  # this thread must outlive whatever one recurrence is like
                logger.exception("progress that waits could not be written; trying again")


def _with(recurrence: TrainingRecurrence, progress: Progress) -> TrainingRecurrence:
    """The recurrence with a progress; unchanged once it has its outcome, since nothing is written after that."""
    if recurrence.status.result is not None or progress == recurrence.status.progress:
        return recurrence
    return recurrence.model_copy(update={"status": recurrence.status.model_copy(update={"progress": progress})})


def _is_urgent(before: TrainingRecurrence, after: TrainingRecurrence) -> bool:
    """Whether an attempt is to stop, has reached its target or is done by this. Each happens once."""
    old, new = before.status.progress or Progress(), after.status.progress or Progress()
    return (old.stop_requested, old.reached, old.finished) != (new.stop_requested, new.reached, new.finished)
