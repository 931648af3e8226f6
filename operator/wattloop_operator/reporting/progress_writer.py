"""Merges reports into progress, and writes each recurrence at most once per interval.

A report that stops the training, reaches the target, brings a verdict or is the last one is written before it is
answered. After a kill the next report repeats what was not written, since reports are cumulative.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from wattloop.errors import OperationError
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.periodic_thread import PeriodicThread
from wattloop_operator.reporting.interfaces import (
    ProgressStore,
    ProgressTooLargeError,
    TooManyRequestsError,
    UnknownRecurrenceError,
)
from wattloop_operator.store.attempt_progress import AttemptProgress, text_of

logger = logging.getLogger(__name__)

MAX_TRIES = 10
# Bounds the memory; far more than the rate limit of one recurrence allows in an interval.
MAX_WAITING_REPORTS = 2_048
POLL_SECONDS = 0.25

Key = tuple[str, str]
Received = TypeVar("Received")
Judge = Callable[[TrainingAttempt, Sequence[Any]], Progress]
# Far above what a training of 1,024 GPUs and 256 pods reports.
MAX_PROGRESS_BYTES = 640 * 1024

FindRecurrence = Callable[[str, str], TrainingRecurrence | None]
"""The TrainingRecurrence of a namespace and a name as it is now; None if it does not exist."""


@dataclass
class _Attempt(Generic[Received]):
    """The state of one recurrence between two writes.

    Attributes:
        users: Threads that hold or wait for the lock.
        known: The recurrence as last read, with the progress that waits to be written; None if not
            known.
        waiting: Reports that are merged into `known` and not written.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    known: TrainingAttempt | None = None
    waiting: list[Received] = field(default_factory=list)
    written_at: float = -float("inf")
    read_at: float = -float("inf")


class ProgressWriter(Generic[Received]):
    """Merges reports and writes progress. Safe to use from several threads.

    It raises UnknownRecurrenceError, TooManyRequestsError if too many reports of a recurrence wait to be written,
    ProgressTooLargeError, and OperationError if a write failed for now, so that a report may be sent again.

    Args:
        merge: Merges a report into the progress of a recurrence.
        judge: Decides on an early stop and on verdicts: returns the progress with them. Called once for
            all reports that are merged together.
        interval_seconds: Minimum time between two writes of one recurrence; 0 to write every
            report.
        on_verdict: Called with namespace and name after a verdict was written.
    """

    def __init__(
        self,
        progress_store: ProgressStore,
        merge: Callable[[TrainingAttempt, Received], Progress],
        judge: Judge,
        clock: Callable[[], float],
        interval_seconds: float = 0.0,
        *,
        on_verdict: Callable[[Key], None] = lambda _key: None,
    ) -> None:
        self._on_verdict = on_verdict
        self._progress_store = progress_store
        self._merged_progress = merge
        self._judged_progress = judge
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._attempts: dict[Key, _Attempt[Received]] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def merge(self, namespace: str, name: str, report: Received) -> TrainingAttempt:
        """Merge a report; returns the recurrence with it."""
        key = (namespace, name)
        with self._locked(key) as attempt:
            known = attempt.known
            if known is None or self._is_due(attempt):
                return self._write(key, attempt, report)
            merged = self._merged(known, report)
            if merged == known:
                return known
            if _is_urgent(known, merged):
                return self._write(key, attempt, report)
            if len(attempt.waiting) >= MAX_WAITING_REPORTS:
                raise TooManyRequestsError(f"recurrence {namespace}/{name}", self._interval_seconds)
            attempt.waiting.append(report)
            attempt.known = merged
            return merged

    def merge_at_once(self, namespace: str, name: str, reports: Sequence[Received]) -> TrainingAttempt:
        """Merge reports and write them; returns the recurrence with them."""
        key = (namespace, name)
        with self._locked(key) as attempt:
            return self._write(key, attempt, *reports)

    def current(self, namespace: str, name: str) -> TrainingAttempt:
        """The recurrence as read at most an interval ago, for ranks that wait for a verdict."""
        key = (namespace, name)
        with self._locked(key) as attempt:
            # What waits here is written, and the recurrence read again, within the interval.
            is_recent = bool(attempt.waiting) or self._clock() - attempt.read_at < self._interval_seconds
            if attempt.known is None or not is_recent:
                attempt.known, attempt.read_at = self._read(key), self._clock()
            return attempt.known

    def write_due(self, *, everything: bool = False) -> None:
        """Write progress that has waited for an interval, and drop recurrences that are written."""
        with self._lock:
            keys = list(self._attempts)
        for key in keys:
            with self._locked(key) as attempt:
                if attempt.waiting and (everything or self._is_due(attempt)):
                    self._write_waiting(key, attempt)

    def _write_waiting(self, key: Key, attempt: _Attempt[Received]) -> None:
        try:
            self._write(key, attempt)
        except UnknownRecurrenceError:
            # The recurrence is deleted.
            attempt.waiting.clear()
        except ProgressTooLargeError as error:
            attempt.waiting.clear()
            logger.warning("dropped reports of %s/%s: %s", *key, error)
        except OperationError as error:
            # The reports still wait, and are written after an interval or with the next report.
            attempt.written_at = self._clock()
            logger.warning("cannot write the progress of %s/%s yet: %s", *key, error)
        except Exception:  # those of other recurrences are written; the next report is cumulative
            attempt.waiting.clear()
            logger.exception("unexpected failure while the progress of %s/%s was written; dropped reports", *key)

    def _write(self, key: Key, attempt: _Attempt[Received], *reports: Received) -> TrainingAttempt:
        attempt.known = None
        for _ in range(MAX_TRIES):
            recurrence = self._read(key)
            merged = self._merged(recurrence, *attempt.waiting, *reports)
            if merged != recurrence:
                # A failed write counts too, because it is a transaction.
                attempt.written_at = self._clock()
                try:
                    self._progress_store.write(recurrence, merged.progress)
                except StaleSnapshotError:
                    continue
            attempt.waiting.clear()
            attempt.known, attempt.read_at = merged, self._clock()
            if _verdict(recurrence) != _verdict(merged):
                self._on_verdict(key)
            return merged
        raise OperationError(f"{key[0]}/{key[1]} changes faster than reports can be written; send the report again")

    def _merged(self, recurrence: TrainingAttempt, *reports: Received) -> TrainingAttempt:
        for report in reports:
            recurrence = _with(recurrence, self._merged_progress(recurrence, report))
        return _with(recurrence, self._judged_progress(recurrence, reports)) if reports else recurrence

    def _read(self, key: Key) -> TrainingAttempt:
        recurrence = self._progress_store.read(*key)
        if recurrence is None:
            raise UnknownRecurrenceError(f"TrainingRecurrence {key[0]}/{key[1]} does not exist")
        return recurrence

    def _is_due(self, attempt: _Attempt[Received]) -> bool:
        return self._clock() - attempt.written_at >= self._interval_seconds

    @contextlib.contextmanager
    def _locked(self, key: Key) -> Iterator[_Attempt[Received]]:
        with self._lock:
            attempt = self._attempts.setdefault(key, _Attempt())
            attempt.users += 1
        try:
            with attempt.lock:
                yield attempt
        finally:
            with self._lock:
                attempt.users -= 1
                is_recent = self._clock() - attempt.read_at < self._interval_seconds
                if not attempt.users and not attempt.waiting and self._is_due(attempt) and not is_recent:
                    self._attempts.pop(key, None)


class ProgressWriterThread(PeriodicThread):
    """Calls `write_due` in a thread; a context manager that writes all waiting progress at its end."""

    def __init__(self, writer: ProgressWriter[Any]) -> None:
        super().__init__(self._write, "progress-writer", POLL_SECONDS)
        self._writer = writer

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._writer.write_due(everything=True)

    def _write(self) -> None:
        try:
            self._writer.write_due()
        except Exception:  # an error of one recurrence must not end the thread
            logger.exception("unexpected failure while writing progress; retrying")


def _with(recurrence: TrainingAttempt, progress: Progress) -> TrainingAttempt:
    """The recurrence with new progress; unchanged once the recurrence has a result."""
    if recurrence.status.result is not None or progress == recurrence.progress:
        return recurrence
    return recurrence.model_copy(update={"progress": progress})


def _is_urgent(before: TrainingAttempt, after: TrainingAttempt) -> bool:
    old, new = before.progress, after.progress
    if _verdict(before) != _verdict(after):
        return True
    return (old.stop_requested, old.reached, old.finished) != (new.stop_requested, new.reached, new.finished)


def _verdict(recurrence: TrainingAttempt) -> tuple[int, int | None]:
    progress = recurrence.progress
    return progress.decided_epoch, progress.stop_epoch


class StoredProgress:
    """Implements `wattloop_operator.reporting.interfaces.ProgressStore`."""

    def __init__(
        self,
        find: FindRecurrence,
        rows: AttemptProgress,
        clock: Callable[[], datetime],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._find = find
        self._rows = rows
        self._clock = clock
        self._wake = wake

    def read(self, namespace: str, name: str) -> TrainingAttempt | None:
        """See `ProgressStore`. Of an attempt whose outcome is decided, the status is that outcome."""
        recurrence = self._find(namespace, name)
        if recurrence is None:
            return None
        (attempt,) = self._rows.attempts([recurrence])
        if attempt.outcome is None or attempt.status.result is not None:
            return attempt
        return attempt.model_copy(update={"status": attempt.outcome})

    def write(self, recurrence: TrainingAttempt, progress: Progress) -> None:
        """See `ProgressStore`."""
        body, name = text_of(progress), recurrence.metadata.full_name
        size_bytes = len(body.encode())
        if size_bytes > MAX_PROGRESS_BYTES:
            raise ProgressTooLargeError(
                f"the progress of {name} would have {size_bytes} bytes, and at most {MAX_PROGRESS_BYTES} are stored"
            )
        after = recurrence.model_copy(update={"progress": progress})
        self._rows.write(recurrence, body, ending=progress.is_ending or after.must_end, now=self._clock())
        self._wake()
