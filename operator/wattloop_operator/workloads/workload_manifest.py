"""The manifest of an attempt's workload, of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattloop.wire.message_fields import shown
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import wrong_job, wrong_type
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.api.workload_checks.fields import misspelt
from wattloop_operator.domain.names import MAX_ATTEMPT, SLOT_CHARACTERS, recurrence_name
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError, injection_of
from wattloop_operator.workloads.kinds import kind_of_template
from wattloop_operator.workloads.kueue import check_queue_labels
from wattloop_operator.workloads.ownership import group_kind, labels_of, owner_reference
from wattloop_operator.workloads.rendezvous import add_rendezvous, meets

# Kinds without conditions of Kubernetes' form and without a module here, so that their end cannot be read.
WITHOUT_CONDITIONS = frozenset({("batch.volcano.sh", "Job")})
# Characters of an object's name that its controller accepts. It refuses others by an Event alone, and runs nothing.
MAX_NAMES = {("ray.io", "RayJob"): 47}
# Of all pods together; statuses and the store have 63 bits.
MAX_DEVICES = 1_000_000


def kind_of(job: RecurringTrainingJob) -> tuple[str, str]:
    """API version and kind of a job's workloads."""
    return job.spec.template.api_version, job.spec.template.kind


def devices_of(job: RecurringTrainingJob) -> int:
    """Number of GPUs that a job's workloads request for training; 0 if its template cannot be started."""
    try:
        return requested_devices(job)
    except TemplateError:
        return 0


def manifest(job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: ClusterAddresses) -> dict[str, Any]:
    """The workload of an attempt: it has its recurrence's name, and the recurrence owns it.

    Raises:
        TemplateError: The template cannot be started.
    """
    template = job.spec.template
    check_queue_labels(template)
    injection = injection_of(job, recurrence, addresses, requested_devices(job))
    spec = kind_of_template(template).spec(template, injection)
    if meets(template):
        add_rendezvous(spec, recurrence.metadata.name, job.spec.training_containers)
    metadata: dict[str, Any] = {
        "name": recurrence.metadata.name,
        "namespace": recurrence.metadata.namespace,
        "labels": labels_of(recurrence, template.metadata.labels),
    }
    if template.metadata.annotations:
        metadata["annotations"] = dict(template.metadata.annotations)
    if recurrence.metadata.uid:
        metadata["ownerReferences"] = [owner_reference(recurrence)]
    api_version, kind = kind_of(job)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def check_stored(template: Template, stored: Mapping[str, Any]) -> None:
    """Check that the API server has kept the additions; it drops fields that the cluster's version of a kind lacks.

    Args:
        template: The template.
        stored: The workload as the server answers with it.

    Raises:
        TemplateError: It has dropped them.
    """
    patches, spec = kind_of_template(template).patches, stored.get("spec") or {}
    if patches and not any(spec.get(field) for field in patches):
        raise TemplateError(
            f"the {stored.get('kind')} of this cluster has neither {' nor '.join(patches)}, so its pods cannot receive "
            "their token; install a version that docs/workloads.md lists"
        )


def requested_devices(job: RecurringTrainingJob) -> int:
    """Number of GPUs that a job's workloads request for training.

    Raises:
        TemplateError: Its kind is not supported or cannot have the job's name, a value of the template has a wrong
            type, it lacks a named container, or it requests no possible number of GPUs.
    """
    template, (api_version, kind) = job.spec.template, kind_of(job)
    if group_kind(api_version, kind) in WITHOUT_CONDITIONS:
        raise TemplateError(
            f"spec.template: Wattloop cannot read how a {kind} of {api_version} ends; use a Job or a JobSet, "
            "whose pods may have another scheduler by schedulerName"
        )
    _check_name(job, api_version, kind)
    wire, names = template.to_wire(), job.spec.training_containers
    wrong = wrong_type(wire) or misspelt(wire) or wrong_job(wire, names)
    if wrong is not None:
        raise TemplateError(str(wrong))
    found = kind_of_template(template).devices(template, names)
    if found > MAX_DEVICES:
        raise TemplateError(
            f"spec.template: found {shown(found)} GPUs in all of its pods, expected at most {MAX_DEVICES}; reduce the "
            "number of pods, or of each one's GPUs"
        )
    return found


def _check_name(job: RecurringTrainingJob, api_version: str, kind: str) -> None:
    """Check that the controller of a kind accepts the names of all attempts.

    Raises:
        TemplateError: It does not.
    """
    name, accepted = job.metadata.name, MAX_NAMES.get(group_kind(api_version, kind))
    if accepted is None:
        return
    longest = recurrence_name(name, 0, "0" * SLOT_CHARACTERS, MAX_ATTEMPT)
    too_long = len(longest) - accepted
    if too_long > 0 or not name[:1].isalpha():
        raise TemplateError(
            f"metadata.name: found {name}, expected at most {len(name) - max(too_long, 0)} characters that begin with "
            f"a letter: the {kind} of an attempt has a longer name, of which its controller accepts {accepted}"
        )
