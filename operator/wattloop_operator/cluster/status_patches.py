"""The status as it is applied: each writer names its own part, and only that, so that neither undoes the other's."""

from __future__ import annotations

from typing import Any

from wattloop_operator.api.progress import Progress
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus


def outcome_to_apply(recurrence: TrainingRecurrence, status: TrainingRecurrenceStatus) -> dict[str, Any]:
    """The engine's part of a recurrence's status, for the recurrence exactly as it was when it was decided."""
    written = status.model_copy(update={"progress": None})
    return _to_apply(recurrence, written.to_wire(), resource_version=recurrence.metadata.resource_version)


def progress_to_apply(recurrence: TrainingRecurrence, progress: Progress) -> dict[str, Any]:
    """The reporting API's part, for the recurrence exactly as it was when the report was taken in."""
    status = {"progress": progress.to_wire()}
    return _to_apply(recurrence, status, resource_version=recurrence.metadata.resource_version)


def job_status_to_apply(job: RecurringTrainingJob, status: RecurringTrainingJobStatus) -> dict[str, Any]:
    """The status of a job; it has one writer."""
    return _to_apply(job, status.to_wire(), resource_version=None)


def _to_apply(
    thing: RecurringTrainingJob | TrainingRecurrence, status: dict[str, Any], *, resource_version: str | None
) -> dict[str, Any]:
    metadata = {"name": thing.metadata.name, "namespace": thing.metadata.namespace}
    # An object of the same name that was made since is another one.
    metadata |= {"uid": thing.metadata.uid}
    metadata |= {"resourceVersion": resource_version} if resource_version else {}
    return {"apiVersion": thing.api_version, "kind": thing.kind, "metadata": metadata, "status": status}
