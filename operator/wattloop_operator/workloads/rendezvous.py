"""How the pods of an indexed Job find each other: a headless Service, and variables that name the first pod.

The Job controller gives the pod of index i the host name NAME-i. With the Service's name as their
subdomain, the pods resolve NAME-0.NAME in their namespace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import training_containers
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import RECURRENCE_LABEL
from wattloop_operator.workloads.ownership import labels_of, owner_reference

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
