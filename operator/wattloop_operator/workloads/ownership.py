"""Whose a workload is: labels to find it by, and the owner reference that makes it a recurrence's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.learning.decision import JOB_LABEL, RECURRENCE_LABEL

# The API server puts it into the pod template of each Job, so that the Job controller counts the pods that carry it.
JOB_UID_LABEL = "batch.kubernetes.io/controller-uid"


def labels_of(recurrence: TrainingRecurrence, further: Mapping[str, str]) -> dict[str, str]:
    """The labels of everything that an attempt starts."""
    return {**further, JOB_LABEL: recurrence.spec.job_ref.name, RECURRENCE_LABEL: recurrence.metadata.name}


def owner_reference(recurrence: TrainingRecurrence) -> dict[str, Any]:
    """The reference by which a workload is deleted with its recurrence."""
    return {
        "apiVersion": recurrence.api_version,
        "kind": recurrence.kind,
        "name": recurrence.metadata.name,
        "uid": recurrence.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The owner reference of an object's controller; empty where it has none."""
    owners = metadata.get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def controller_uid(metadata: Mapping[str, Any]) -> str:
    """The uid of an object's controller; empty where it has none."""
    return str(controller(metadata).get("uid", ""))


def is_pod_of_job(metadata: Mapping[str, Any], job_uid: str) -> bool:
    """Whether a pod is controlled by a Job and counted by the Job controller as one of the Job's."""
    return controller_uid(metadata) == job_uid == str((metadata.get("labels") or {}).get(JOB_UID_LABEL))
