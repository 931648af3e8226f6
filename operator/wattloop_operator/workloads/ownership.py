"""Ownership of workloads: labels that select an attempt's objects, and owner references that chain them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL

# The API server adds it to the pod template of each Job; the Job controller counts the pods that
# have it.
JOB_UID_LABEL = "batch.kubernetes.io/controller-uid"


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
