"""Whether a pod runs a recurrence: followed upwards by uid, from the pod to the workload that the operator started.

The root is `status.workloadRef.uid`, which only the operator writes. An owner reference alone proves little: whoever
creates an object writes its owner references, and the API server does not check them. So a pod of a Job must also look
as the Job controller makes it. docs/security.md says what remains, and which admission policy closes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattloop_operator.cluster.api import JOBS, ClusterApi
from wattloop_operator.workloads.ownership import JOB_UID_LABEL, controller_of, controller_uid

Body = Mapping[str, Any]
DEFAULT_SERVICE_ACCOUNT = "default"


def workload_uid(recurrence: Body) -> str:
    """Uid of the workload that the operator started for a recurrence; empty where none is written down."""
    return str(((recurrence.get("status") or {}).get("workloadRef") or {}).get("uid") or "")


def runs(api: ClusterApi, pod: Body, recurrence: Body) -> bool:
    """Whether a pod runs a recurrence.

    Args:
        api: The API server.
        pod: The pod as it is now.
        recurrence: The TrainingRecurrence as it is now, of the same namespace.

    Raises:
        RejectedError: The server refuses to say.
        OperationError: It could not be found out now.
    """
    root, owner = workload_uid(recurrence), controller_of(pod["metadata"])
    if not root or not owner.get("uid"):
        return False
    if (owner.get("apiVersion"), owner.get("kind")) != (JOBS.api_version, JOBS.kind):
        # A workload of another kind that makes its pods itself, such as a PyTorchJob.
        return bool(owner["uid"] == root)
    job = api.find(JOBS, str(pod["metadata"]["namespace"]), str(owner["name"]))
    if job is None or job["metadata"]["uid"] != owner["uid"] or not _made_by_job_controller(pod, job):
        return False
    # A JobSet has Jobs, and the recurrence's own Job is the root itself.
    return root in (job["metadata"]["uid"], controller_uid(job["metadata"]))


def _made_by_job_controller(pod: Body, job: Body) -> bool:
    """Whether a pod is as the Job controller makes the pods of this Job.

    The label matters most: with it the Job controller counts the pod as one of its own, and deletes what is more than
    the Job's parallelism.
    """
    metadata, own = pod["metadata"], job["metadata"]
    template = (job.get("spec") or {}).get("template") or {}
    return (
        (metadata.get("labels") or {}).get(JOB_UID_LABEL) == own["uid"]
        and str(metadata["name"]).startswith(f"{own['name']}-")
        and str(metadata.get("creationTimestamp", "")) >= str(own.get("creationTimestamp", ""))
        and _service_account(pod) == _service_account(template)
    )


def _service_account(template: Body) -> str:
    return str((template.get("spec") or {}).get("serviceAccountName") or DEFAULT_SERVICE_ACCOUNT)
