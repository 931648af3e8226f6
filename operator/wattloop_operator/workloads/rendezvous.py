"""How the pods of an indexed Job find each other: a headless Service, and variables that name the first pod.

The Job controller gives the pod of index i the host name NAME-i. With the Service's name as their
subdomain, the pods resolve NAME-0.NAME in their namespace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template import Rendezvous
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import RECURRENCE_LABEL
from wattloop_operator.workloads.injection import TemplateError
from wattloop_operator.workloads.ownership import labels_of, owner_reference

INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


def service(job: RecurringTrainingJob, recurrence: TrainingRecurrence) -> dict[str, Any] | None:
    """The headless Service of an attempt's pods, named as its recurrence; None if the template asks for none."""
    rendezvous = job.spec.template.rendezvous
    if rendezvous is None:
        return None
    metadata: dict[str, Any] = {
        "name": recurrence.metadata.name,
        "namespace": recurrence.metadata.namespace,
        "labels": labels_of(recurrence, job.spec.template.labels),
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
            "ports": [{"name": "rendezvous", "port": rendezvous.port}],
        },
    }


def add_rendezvous(
    spec: dict[str, Any], rendezvous: Rendezvous, name: str, training_containers: Collection[str] | None
) -> None:
    """Let the pods of a Job's spec meet: by the environment (`init_method="env://"`) or by torchrun's variables.

    A variable that the user sets stays as it is. torchrun sets RANK and WORLD_SIZE anew for each of its
    processes.

    Args:
        spec: The spec, which is changed.
        rendezvous: What the template asks for.
        name: Name of the Job and of the Service.
        training_containers: Names of the containers that train; None: all of them.

    Raises:
        TemplateError: The pods are in another subdomain, or the Job is not indexed.
    """
    if spec.get("completionMode") != "Indexed":
        raise TemplateError(
            f"spec.template.rendezvous needs a Job whose pods have an index: found completionMode "
            f"{spec.get('completionMode', 'NonIndexed')}, expected Indexed"
        )
    pod = spec["template"]["spec"]
    if pod.get("subdomain", name) != name or pod.get("hostname"):
        raise TemplateError(
            "spec.template.rendezvous sets the pods' host names and subdomain: remove hostname and subdomain from the "
            "pod template, or remove rendezvous and make a Service of your own"
        )
    pod["subdomain"] = name
    pods = spec.get("parallelism")
    variables = _variables(rendezvous, name, 1 if pods is None else pods)
    for container in pod["containers"]:
        if training_containers is None or container.get("name") in training_containers:
            own = container.get("env") or []
            set_by_user = {str(each.get("name")) for each in own}
            container["env"] = [each for each in variables if each["name"] not in set_by_user] + list(own)


def _variables(rendezvous: Rendezvous, name: str, pods: int) -> list[dict[str, Any]]:
    address, port = f"{name}-0.{name}", str(rendezvous.port)
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
