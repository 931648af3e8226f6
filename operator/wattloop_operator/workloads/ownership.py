"""Ownership of workloads: labels that select an attempt's objects, and owner references that chain them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL

# The API server adds it to the pod template of each Job; the Job controller counts the pods that
# have it.
JOB_UID_LABEL = "batch.kubernetes.io/controller-uid"
# A pod of a TrainJob has three: a Job, a JobSet and the TrainJob.
MAX_CONTROLLERS = 4

GroupKind = tuple[str, str]
"""API group and kind."""
JOB: GroupKind = ("batch", "Job")


def labels_of(recurrence: TrainingRecurrence, user_labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of every object that an attempt starts."""
    return {**user_labels, JOB_LABEL: recurrence.spec.job_ref.name, RECURRENCE_LABEL: recurrence.metadata.name}


def owner_reference(recurrence: TrainingRecurrence) -> dict[str, Any]:
    """The owner reference by which Kubernetes deletes a workload with its recurrence."""
    return {
        "apiVersion": recurrence.api_version,
        "kind": recurrence.kind,
        "name": recurrence.metadata.name,
        "uid": recurrence.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The owner reference of an object's controller; empty if it has none."""
    owners = metadata.get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def controller_uid(metadata: Mapping[str, Any]) -> str:
    """The uid of an object's controller; empty if it has none."""
    return str(controller_of(metadata).get("uid", ""))


def is_pod_of_job(metadata: Mapping[str, Any], job_uid: str) -> bool:
    """Whether a Job controls a pod and the Job controller counts it as one of the Job's."""
    return controller_uid(metadata) == job_uid == str((metadata.get("labels") or {}).get(JOB_UID_LABEL))


def group_kind(api_version: str, kind: str) -> GroupKind:
    """The group and the kind of an object.

    Example:
        >>> group_kind("batch/v1", "Job"), group_kind("v1", "Pod")
        (('batch', 'Job'), ('', 'Pod'))
    """
    return api_version.rpartition("/")[0], kind


def is_controlled_by(
    metadata: Mapping[str, Any],
    root_uid: str,
    between: Collection[GroupKind],
    controller: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> bool:
    """Whether the chain of an object's controllers leads to another object.

    Args:
        metadata: Of the object.
        root_uid: Uid of the other object.
        between: Kinds of the objects that may be between them.
        controller: Returns the owner reference of the controller of an object, of which it gets an owner reference;
            empty if there is no such object.
    """
    owner = controller_of(metadata)
    for _ in range(MAX_CONTROLLERS):
        if not owner.get("uid"):
            return False
        if owner["uid"] == root_uid:
            return True
        if group_kind(str(owner.get("apiVersion")), str(owner.get("kind"))) not in between:
            return False
        owner = controller(owner)
    return False
