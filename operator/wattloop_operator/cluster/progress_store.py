"""The reporting API's progress book on the API server: read live, written on the condition that nothing has changed."""

from __future__ import annotations

import json

from wattloop.errors import OperationError
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    TRAINING_RECURRENCES,
    ClusterApi,
    ConflictError,
    NotFoundError,
    RejectedError,
    status_to_apply,
)
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reporting.interfaces import ProgressTooLargeError

# Not the engine's: each of the two owns its part of the status, and neither removes the other's.
FIELD_MANAGER = "wattloop-reporting"
# etcd takes requests of 1.5 MiB: the rest is for the outcome, pods, conditions and what the API server keeps of fields.
MAX_PROGRESS_BYTES = 256 * 1024


class ClusterProgressStore:
    """Implements `wattloop_operator.reporting.interfaces.ProgressStore`.

    Args:
        api: The API server; every replica of the operator takes in reports, whether it leads or not.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """The recurrence as it is now; None where there is none."""
        try:
            body = self._api.find(TRAINING_RECURRENCES, namespace, name)
        except RejectedError as error:
            raise OperationError(f"{namespace}/{name} cannot be read: {error}") from error
        return None if body is None else TrainingRecurrence.from_wire(body)

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """Write the progress of a recurrence that is still as it was read."""
        name = f"{recurrence.metadata.namespace}/{recurrence.metadata.name}"
        version = recurrence.metadata.resource_version
        body = status_to_apply(recurrence, {"progress": progress.to_wire()}, resource_version=version)
        size_bytes = len(json.dumps(body["status"]).encode())
        if size_bytes > MAX_PROGRESS_BYTES:
            raise ProgressTooLargeError(
                f"the progress of {name} would have {size_bytes} bytes, and at most {MAX_PROGRESS_BYTES} are kept"
            )
        try:
            self._api.apply_status(TRAINING_RECURRENCES, body, field_manager=FIELD_MANAGER)
        except (ConflictError, NotFoundError) as error:
            raise StaleSnapshotError(str(error)) from error
        except RejectedError as error:
            raise OperationError(f"the progress of {name} cannot be written: {error}") from error
