"""Whether a pod runs a recurrence: its owner must be the recurrence's workload, or a Job that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.resources import JOBS
from wattloop_operator.workloads.ownership import controller_uid

Body = Mapping[str, Any]


def runs(api: ClusterApi, pod: Body, recurrence: Body) -> bool:
    """Whether a pod runs a recurrence.

    Args:
        api: The API server.
        pod: The pod as it is now.
        recurrence: The TrainingRecurrence as it is now, of the same namespace.

    Raises:
        RefusedError: The server refuses to say.
        CannotError: It could not be found out now.
    """
    workload = ((recurrence.get("status") or {}).get("workloadRef") or {}).get("uid")
    owner = controller_uid(pod["metadata"])
    owners = {str(recurrence["metadata"]["uid"]), workload}
    return bool(owner) and (owner == workload or _belongs(api, pod, owner, owners))


def _belongs(api: ClusterApi, pod: Body, owner: str, owners: set[str | None]) -> bool:
    """Whether the pod's Job belongs to the recurrence, or to its workload of another kind (a JobSet has Jobs)."""
    references = pod["metadata"].get("ownerReferences") or ()
    controller: Body = next((each for each in references if each.get("controller")), {})
    if controller.get("kind") != JOBS.kind:
        return False
    job = api.find(JOBS, str(pod["metadata"]["namespace"]), str(controller["name"]))
    return job is not None and job["metadata"]["uid"] == owner and controller_uid(job["metadata"]) in owners
