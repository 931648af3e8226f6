"""The object that runs an attempt, whatever its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.workloads.cluster_injection import ClusterAddresses
from wattloop_operator.workloads.job import job_devices, job_spec
from wattloop_operator.workloads.other_kind import other_devices, other_spec
from wattloop_operator.workloads.ownership import labels_of, owner_reference
from wattloop_operator.workloads.pod_template import TemplateError

JOB = ("batch/v1", "Job")


def kind_of(job: RecurringTrainingJob) -> tuple[str, str]:
    """API version and kind of a job's workloads."""
    workload = job.spec.template.workload
    return JOB if workload is None else (workload.api_version, workload.kind)


def devices_of(job: RecurringTrainingJob) -> int:
    """How many GPUs the training containers of a job's workloads ask for; 0 where its template cannot be started."""
    template = job.spec.template
    try:
        if template.workload is not None:
            return other_devices(template.workload.spec, template.training_containers)
        return 0 if template.job is None else job_devices(template.job, template.training_containers)
    except TemplateError:
        return 0


def manifest(job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: ClusterAddresses) -> dict[str, Any]:
    """The workload of an attempt, named as its recurrence and owned by it.

    Raises:
        TemplateError: The template cannot be started as it stands.
    """
    template = job.spec.template
    api_version, kind = kind_of(job)
    build = job_spec if template.workload is None else other_spec
    metadata: dict[str, Any] = {
        "name": recurrence.metadata.name,
        "namespace": recurrence.metadata.namespace,
        "labels": labels_of(recurrence, template.labels),
    }
    if template.annotations:
        metadata["annotations"] = dict(template.annotations)
    if recurrence.metadata.uid:
        metadata["ownerReferences"] = [owner_reference(recurrence)]
    spec: Mapping[str, Any] = build(job, recurrence, addresses)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": dict(spec)}
