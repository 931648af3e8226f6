"""Whether a pod runs a recurrence: a chain of uids from the pod up to the workload that the operator started.

The root is `status.workloadRef.uid`, which only the operator writes. An owner reference alone
proves little: the creator of an object writes its owner references, and the API server does not
verify them. So a pod of a Job must also look as the Job controller creates it. docs/security.md
describes the remaining risk and the admission policy against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattloop_operator.cluster.api import JOBS, ClusterApi
from wattloop_operator.workloads.ownership import JOB_UID_LABEL, controller_of, controller_uid

Body = Mapping[str, Any]
DEFAULT_SERVICE_ACCOUNT = "default"


def workload_uid(recurrence: Body) -> str:
    """Uid of the workload that the operator started for a recurrence; empty if the status has none."""
    return str(((recurrence.get("status") or {}).get("workloadRef") or {}).get("uid") or "")


def runs(api: ClusterApi, pod: Body, recurrence: Body) -> bool:
    """Whether a pod runs a recurrence.

    Args:
        api: The API server.
        pod: The current pod.
        recurrence: The current TrainingRecurrence, in the same namespace.

    Raises:
        RejectedError: The API server rejects the request.
        OperationError: The API server does not answer now.
    """
    root, owner = workload_uid(recurrence), controller_of(pod["metadata"])
    if not root or not owner.get("uid"):
        return False
    if (owner.get("apiVersion"), owner.get("kind")) != (JOBS.api_version, JOBS.kind):
        # A workload of another kind that creates its pods itself, such as a PyTorchJob.
        return bool(owner["uid"] == root)
    job = api.find(JOBS, str(pod["metadata"]["namespace"]), str(owner["name"]))
    if job is None or job["metadata"]["uid"] != owner["uid"] or not _created_by_job_controller(pod, job):
        return False
    # The Job is the root, or its controller is: a JobSet creates Jobs.
    return root in (job["metadata"]["uid"], controller_uid(job["metadata"]))


def _created_by_job_controller(pod: Body, job: Body) -> bool:
    """Whether a pod looks as the Job controller creates the pods of this Job.

    The label matters most: the Job controller counts each pod that has it as one of its own, and
    deletes those that exceed the Job's parallelism.
    """
    metadata, owner = pod["metadata"], job["metadata"]
    template = (job.get("spec") or {}).get("template") or {}
    return (
        (metadata.get("labels") or {}).get(JOB_UID_LABEL) == owner["uid"]
        and str(metadata["name"]).startswith(f"{owner['name']}-")
        and str(metadata.get("creationTimestamp", "")) >= str(owner.get("creationTimestamp", ""))
        and _service_account(pod) == _service_account(template)
    )


def _service_account(template: Body) -> str:
    return str((template.get("spec") or {}).get("serviceAccountName") or DEFAULT_SERVICE_ACCOUNT)
