"""The progress of recurrences in the store's database: the book of the local reporting API."""

from __future__ import annotations

from collections.abc import Callable

from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.local.stored_recurrences import RECURRENCE, recurrence_of, replace_recurrence
from wattloop_operator.store.objects import Objects


class LocalProgressStore:
    """Keeps progress in the objects of the store.

    Args:
        objects: The store's objects.
        wake: Called once progress was written.
    """

    def __init__(self, objects: Objects, wake: Callable[[], None]) -> None:
        self._objects = objects
        self._wake = wake

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """See `ProgressStore`."""
        stored = self._objects.get(RECURRENCE, namespace, name)
        return None if stored is None else recurrence_of(stored)

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """See `ProgressStore`."""
        status = recurrence.status.model_copy(update={"progress": progress})
        replace_recurrence(self._objects, recurrence, recurrence.model_copy(update={"status": status}))
        self._wake()
