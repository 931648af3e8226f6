"""The manifest of an attempt's workload, of any kind, and how the pods of an indexed Job find each other.

The Job controller gives the pod of index i the host name NAME-i. With the Service's name as their
subdomain, the pods resolve NAME-0.NAME in their namespace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from wattloop.wire.message_fields import shown
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import Path, WrongValue, training_containers, wrong_job, wrong_type
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.api.workload_checks.fields import misspelt
from wattloop_operator.domain.names import MAX_ATTEMPT, RECURRENCE_LABEL, SLOT_CHARACTERS, recurrence_name
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError, injection_of
from wattloop_operator.workloads.kinds import kind_of_template
from wattloop_operator.workloads.kueue import check_queue_labels
from wattloop_operator.workloads.ownership import group_kind, labels_of, owner_reference

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
    """Check that the controller of a kind accepts the names of all attempts."""
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


# The port of the first pod at which the processes of all pods meet.
PORT = 29500
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


def meets(template: Template) -> bool:
    """Whether Wattloop lets the pods of a workload meet: those of an indexed Job whose template names no host."""
    spec = template.spec.value if template.is_job else {}
    if spec.get("completionMode") != "Indexed":
        return False
    pod = spec["template"]["spec"]
    return not (pod.get("subdomain") or pod.get("hostname"))


def service(job: RecurringTrainingJob, recurrence: TrainingRecurrence) -> dict[str, Any] | None:
    """The headless Service of an attempt's pods, named as its recurrence; None if they need none."""
    if not meets(job.spec.template):
        return None
    metadata: dict[str, Any] = {
        "name": recurrence.metadata.name,
        "namespace": recurrence.metadata.namespace,
        "labels": labels_of(recurrence, job.spec.template.pod_labels),
    }
    if recurrence.metadata.uid:
        metadata["ownerReferences"] = [owner_reference(recurrence)]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            # The pods meet before they are ready.
            "publishNotReadyAddresses": True,
            "selector": {RECURRENCE_LABEL: recurrence.metadata.name},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }


def add_rendezvous(spec: dict[str, Any], name: str, names: Collection[str] | None) -> None:
    """Let the pods of an indexed Job meet: by the environment (`init_method="env://"`) or by torchrun's variables.

    A variable that the user sets stays as it is. torchrun replaces RANK and WORLD_SIZE for each of its
    processes.

    Args:
        spec: The spec, which is changed.
        name: Name of the Job and of the Service.
        names: Names of the containers that train; None: the default.
    """
    pod = spec["template"]["spec"]
    pod["subdomain"] = name
    pods = spec.get("parallelism")
    variables = _variables(name, 1 if pods is None else pods)
    for container in training_containers(pod["containers"], names):
        own = container.get("env") or []
        set_by_user = {str(each.get("name")) for each in own}
        container["env"] = [each for each in variables if each["name"] not in set_by_user] + list(own)


def _variables(name: str, pods: int) -> list[dict[str, Any]]:
    address, port = f"{name}-0.{name}", str(PORT)
    values: Mapping[str, str] = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(pods),
        # torchrun takes each of its options from a variable with this prefix.
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NNODES": str(pods),
    }
    # JOB_COMPLETION_INDEX follows all others in the container, so that they cannot refer to it.
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}
    return [{"name": key, "value": value} for key, value in values.items()] + [
        {"name": key, "valueFrom": index} for key in ("RANK", "PET_NODE_RANK")
    ]


# By which the API server rejects an object only for a field that its kind does not have.
STRICT_ERROR = "strict decoding error"
UNKNOWN_FIELD = re.compile(r'unknown field "((?:[^"\\]|\\.)*)"')
STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
EXPECTED = "no field of this name, which the API server would drop; correct its name or its place, or remove it"


def unknown_field(template: Template, sent: Mapping[str, Any], rejection: str) -> WrongValue | None:
    """The first field in a rejection that the template has; None if it has none, because Wattloop added them.

    Args:
        template: The template.
        sent: The workload that was made of it, which has more variables.
        rejection: The API server's message.

    Example:
        >>> template = Template(spec={"template": {"spec": {"restartPolcy": "Never"}}})
        >>> message = 'strict decoding error: unknown field "spec.template.spec.restartPolcy"'
        >>> str(unknown_field(template, {"spec": template.spec.value}, message)).partition(", ")[0]
        "spec.template.spec.template.spec.restartPolcy: found 'Never'"
    """
    written_spec = {"spec": template.spec.value}
    for match in UNKNOWN_FIELD.finditer(rejection):
        steps: Path = tuple(int(index) if index else name for name, index in STEP.findall(match[1]))
        written = _as_written(written_spec, sent, steps)
        if written is not None and len(steps) > 1:
            path, value = written
            return WrongValue(("template", *path), value, EXPECTED)
    return None


def _as_written(template: Any, sent: Any, steps: Path) -> tuple[Path, Any] | None:
    """A path in a workload as the path in its template, and the value there; None if the template has none."""
    path: list[int | str] = []
    for step in steps:
        at = step
        if isinstance(step, int) and path[-1:] == ["env"] and isinstance(template, list):
            # Wattloop's variables come before the user's.
            at = step - (len(sent) - len(template))
        if isinstance(at, int) and at < 0:
            return None
        try:
            template, sent = template[at], sent[step]
        except (LookupError, TypeError):
            return None
        path.append(at)
    return tuple(path), template
