"""The progress of recurrences in the store's database: the book of the local reporting API."""

from __future__ import annotations

from collections.abc import Callable

from wattloop_operator.api.progress import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.loop.world import ChangedError
from wattloop_operator.store.objects import ConflictError, ObjectMissingError, Objects


class LocalBook:
    """Keeps progress in the objects of the store.

    Args:
        objects: The store's objects.
        wake: Called once progress was written.
    """

    def __init__(self, objects: Objects, wake: Callable[[], None]) -> None:
        self._objects = objects
        self._wake = wake

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """See `ProgressBook`."""
        stored = self._objects.get("TrainingRecurrence", namespace, name)
        if stored is None:
            return None
        metadata = {**stored.body["metadata"], "resourceVersion": str(stored.resource_version)}
        return TrainingRecurrence.from_wire({**stored.body, "metadata": metadata})

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """See `ProgressBook`."""
        status = recurrence.status.model_copy(update={"progress": progress})
        metadata = recurrence.metadata
        try:
            self._objects.replace(
                "TrainingRecurrence",
                metadata.namespace,
                metadata.name,
                recurrence.model_copy(update={"status": status}).to_wire(),
                expected_version=int(metadata.resource_version or 0),
            )
        except (ConflictError, ObjectMissingError) as error:
            raise ChangedError(str(error)) from error
        self._wake()
