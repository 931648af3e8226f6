"""The progress of recurrences in their status, written only if the object is unchanged."""

from __future__ import annotations

import json

from wattloop.errors import OperationError
from wattloop_operator.api.attempt_state import Progress
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

# A manager of its own: server-side apply keeps the fields of the controller and of the reporting
# API apart.
FIELD_MANAGER = "wattloop-reporting"
# etcd accepts requests of 1.5 MiB; the outcome, pods, conditions and managed fields need the rest.
MAX_PROGRESS_BYTES = 256 * 1024


class ClusterProgressStore:
    """Implements `wattloop_operator.reporting.interfaces.ProgressStore`.

    Args:
        api: The API server. Every replica of the operator receives reports, whether it leads or
            not.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """The current recurrence; None if it does not exist."""
        try:
            body = self._api.find(TRAINING_RECURRENCES, namespace, name)
        except RejectedError as error:
            raise OperationError(f"{namespace}/{name} cannot be read: {error}") from error
        return None if body is None else TrainingRecurrence.from_wire(body)

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """Write the progress of a recurrence that has not changed since it was read."""
        name = recurrence.metadata.full_name
        version = recurrence.metadata.resource_version
        body = status_to_apply(recurrence, {"progress": progress.to_wire()}, resource_version=version)
        size_bytes = len(json.dumps(body["status"]).encode())
        if size_bytes > MAX_PROGRESS_BYTES:
            raise ProgressTooLargeError(
                f"the progress of {name} would have {size_bytes} bytes, and at most {MAX_PROGRESS_BYTES} are stored"
            )
        try:
            self._api.apply_status(TRAINING_RECURRENCES, body, field_manager=FIELD_MANAGER)
        except (ConflictError, NotFoundError) as error:
            raise StaleSnapshotError(str(error)) from error
        except RejectedError as error:
            raise OperationError(f"the progress of {name} cannot be written: {error}") from error
