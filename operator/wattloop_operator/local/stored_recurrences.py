"""TrainingRecurrences as objects of the store: read with their version, replaced only as they were read."""

from __future__ import annotations

from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconciler.backend import StaleSnapshotError
from wattloop_operator.store.objects import ConflictError, ObjectMissingError, Objects, StoredObject

RECURRENCE = "TrainingRecurrence"


def recurrence_of(stored: StoredObject) -> TrainingRecurrence:
    """The recurrence, with the version that it was read at."""
    metadata = {**stored.body["metadata"], "resourceVersion": str(stored.resource_version)}
    return TrainingRecurrence.from_wire({**stored.body, "metadata": metadata})


def replace_recurrence(objects: Objects, before: TrainingRecurrence, after: TrainingRecurrence) -> None:
    """Put a recurrence in place of the one that was read.

    Raises:
        StaleSnapshotError: It has changed since, or is gone.
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
    except (ConflictError, ObjectMissingError) as error:
        raise StaleSnapshotError(str(error)) from error
