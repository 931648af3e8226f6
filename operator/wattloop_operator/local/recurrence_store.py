"""TrainingRecurrences as objects in the store's database.

A write fails if the object has another resource version than the one that was read (optimistic
locking).
"""

from __future__ import annotations

from collections.abc import Callable

from wattloop_operator.api.attempt_state import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.store.objects import ObjectConflictError, ObjectMissingError, Objects

RECURRENCE = "TrainingRecurrence"


def replace_recurrence(objects: Objects, before: TrainingRecurrence, after: TrainingRecurrence) -> None:
    """Replace a recurrence if it has not changed since it was read.

    Raises:
        StaleSnapshotError: It has changed since, or was deleted.
        OperationError: The database failed.
    """
    metadata = before.metadata
    try:
        objects.replace(
            RECURRENCE,
            metadata.namespace,
            metadata.name,
            after.to_wire(),
            expected_version=int(metadata.resource_version or 0),
        )
    except (ObjectConflictError, ObjectMissingError) as error:
        raise StaleSnapshotError(str(error)) from error


class LocalProgressStore:
    """The `ProgressStore` of the local reporting API.

    Args:
        objects: The store's objects.
        wake: Called after progress was written.
    """

    def __init__(self, objects: Objects, wake: Callable[[], None]) -> None:
        self._objects = objects
        self._wake = wake

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """See `ProgressStore`."""
        stored = self._objects.get(RECURRENCE, namespace, name)
        return None if stored is None else stored.read_as(TrainingRecurrence)

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """See `ProgressStore`."""
        status = recurrence.status.model_copy(update={"progress": progress})
        replace_recurrence(self._objects, recurrence, recurrence.model_copy(update={"status": status}))
        self._wake()
