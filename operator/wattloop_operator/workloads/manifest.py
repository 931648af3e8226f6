"""The manifest of an attempt's workload, of any kind."""

from __future__ import annotations

from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError, injection_of
from wattloop_operator.workloads.job import job_devices, job_spec
from wattloop_operator.workloads.other_kind import other_devices, other_spec
from wattloop_operator.workloads.ownership import labels_of, owner_reference
from wattloop_operator.workloads.rendezvous import add_rendezvous

JOB = ("batch/v1", "Job")


def kind_of(job: RecurringTrainingJob) -> tuple[str, str]:
    """API version and kind of a job's workloads."""
    workload = job.spec.template.workload
    return JOB if workload is None else (workload.api_version, workload.kind)


def devices_of(job: RecurringTrainingJob) -> int:
    """Number of GPUs that a job's workloads request for training; 0 if its template cannot be started."""
    try:
        return _devices(job)
    except TemplateError:
        return 0


def manifest(job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: ClusterAddresses) -> dict[str, Any]:
    """The workload of an attempt: it has its recurrence's name, and the recurrence owns it.

    Raises:
        TemplateError: The template cannot be started.
    """
    template = job.spec.template
    injection = injection_of(job, recurrence, addresses, _devices(job))
    spec = job_spec(template, injection) if template.workload is None else other_spec(template, injection)
    if template.rendezvous is not None:
        add_rendezvous(spec, template.rendezvous, recurrence.metadata.name, template.training_containers)
    metadata: dict[str, Any] = {
        "name": recurrence.metadata.name,
        "namespace": recurrence.metadata.namespace,
        "labels": labels_of(recurrence, template.labels),
    }
    if template.annotations:
        metadata["annotations"] = dict(template.annotations)
    if recurrence.metadata.uid:
        metadata["ownerReferences"] = [owner_reference(recurrence)]
    api_version, kind = kind_of(job)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _devices(job: RecurringTrainingJob) -> int:
    template = job.spec.template
    if template.workload is not None:
        return other_devices(template.workload.spec.value, template.training_containers)
    return 0 if template.job is None else job_devices(template.job.value, template.training_containers)
