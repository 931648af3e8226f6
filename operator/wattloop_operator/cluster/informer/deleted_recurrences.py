"""Ended recurrences that were deleted and of which no Event tells yet."""

from __future__ import annotations

import threading

from wattloop_operator.api.training_recurrence import TrainingRecurrence


class DeletedRecurrences:
    """Remembers each deleted recurrence until its Event has been created, or its job is deleted. Thread-safe.

    It is empty after a restart: a list does not name what was deleted before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_uid: dict[str, TrainingRecurrence] = {}

    def add(self, recurrence: TrainingRecurrence) -> None:
        """Remember a recurrence."""
        with self._lock:
            self._by_uid[recurrence.metadata.uid] = recurrence

    def of_job(self, uid: str) -> tuple[TrainingRecurrence, ...]:
        """Those of the job with this uid."""
        with self._lock:
            return tuple(each for each in self._by_uid.values() if each.spec.job_ref.uid == uid)

    def discard(self, uid: str) -> None:
        """Forget the recurrence with this uid."""
        with self._lock:
            self._by_uid.pop(uid, None)

    def discard_job(self, uid: str) -> None:
        """Forget those of the job with this uid."""
        for each in self.of_job(uid):
            self.discard(each.metadata.uid)
