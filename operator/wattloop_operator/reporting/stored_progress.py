"""The progress of attempts for the reporting API: objects from where the operator finds them, rows from the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.ending import must_end
from wattloop_operator.reporting.interfaces import ProgressTooLargeError
from wattloop_operator.store.attempt_progress import AttemptProgress, text_of

# Far above what a training of 1,024 GPUs and 256 pods reports.
MAX_PROGRESS_BYTES = 640 * 1024

FindRecurrence = Callable[[str, str], TrainingRecurrence | None]
"""The TrainingRecurrence of a namespace and a name as it is now; None if it does not exist."""


class StoredProgress:
    """Implements `wattloop_operator.reporting.interfaces.ProgressStore`.

    Args:
        find: Finds an object.
        rows: The rows.
        clock: The time, with a time zone.
        wake: Called after progress was written.
    """

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
        self._rows.write(recurrence, body, ending=progress.is_ending or must_end(after), now=self._clock())
        self._wake()
