"""The attempt of a deleted pod, from its recurrence's status or from the operator's cache."""

from typing import Any

import pytest

from support.recurrence_objects import recurrence_object
from wattloop.errors import OperationError
from wattloop.wire.node_energy import PodGpuUsage
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.reported_objects import ClusterNodePods
from wattloop_operator.reporting.interfaces import OwnershipError

NAME, POD = "digits-0", "digits-0-abcde"
USAGE = PodGpuUsage("pod-uid", "team", POD, "train", "GPU-0", False, 5000, 10, 1.0, 6.0, True)


def recurrence(*pods: dict[str, str]) -> dict[str, Any]:
    return recurrence_object(NAME, status={"pods": list(pods)}, index=3, attempt=1)


def owned_by(uid: str, name: str, own_uid: str, **more: Any) -> dict[str, Any]:
    labels = {"wattloop.dev/job": "digits", "wattloop.dev/recurrence": NAME, "batch.kubernetes.io/controller-uid": uid}
    owner = {"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": uid, "controller": True}
    metadata = {"name": name, "namespace": "team", "uid": own_uid, "resourceVersion": "6", "labels": labels}
    return {"metadata": {**metadata, "ownerReferences": [owner]}, **more}


def node_pods(stored: dict[str, Any], cache: ObjectCache | None = None) -> ClusterNodePods:
    def respond(request: Request) -> dict[str, Any]:
        if request.path.endswith(f"trainingrecurrences/{NAME}"):
            return stored
        raise StatusError(request, 404, "NotFound", "not found")

    return ClusterNodePods(ClusterApi(respond), lambda: 0.0, cache)


def cached(started: str = "workload-uid", pod_owner: str = "workload-uid", pod_uid: str = "pod-uid") -> ObjectCache:
    cache = ObjectCache()
    stored = recurrence()
    workload = {"apiVersion": "batch/v1", "kind": "Job", "uid": started}
    cache.put_recurrence(stored | {"status": {"workloadRef": workload}})
    cache.put_workload(owned_by("recurrence-uid", NAME, "workload-uid"))
    cache.put_pod(owned_by(pod_owner, POD, pod_uid, spec={"nodeName": "node-1"}))
    return cache


def test_a_pod_in_the_status_has_its_attempt() -> None:
    found = node_pods(recurrence({"uid": "pod-uid", "node": "node-1"})).attempts_of("node-1", [USAGE])["pod-uid"]
    assert (found.job, found.job_uid, found.recurrence, found.attempt) == ("digits", "job-uid", 3, 1)


def test_a_pod_in_the_cache_and_not_yet_in_the_status_has_its_attempt() -> None:
    found = node_pods(recurrence(), cached()).attempts_of("node-1", [USAGE])["pod-uid"]
    assert (found.recurrence, found.attempt) == (3, 1)


@pytest.mark.parametrize(
    "cache", [ObjectCache(), cached(started="another"), cached(pod_owner="another"), cached(pod_uid="another")]
)
def test_a_name_alone_gives_a_pod_no_attempt(cache: ObjectCache) -> None:
    written = recurrence({"uid": "another-uid", "node": "node-1"})
    assert node_pods(written, cache).attempts_of("node-1", [USAGE]) == {}


def test_a_pod_of_a_namespace_outside_the_operators_is_not_looked_up() -> None:
    def reject(request: Request) -> dict[str, Any]:
        raise StatusError(request, 403, "Forbidden", "pods is forbidden")

    with pytest.raises(OperationError, match="cannot be looked up"):
        ClusterNodePods(ClusterApi(reject), lambda: 0.0).attempts_of("node-1", [USAGE])
    assert ClusterNodePods(ClusterApi(reject, ["other"]), lambda: 0.0).attempts_of("node-1", [USAGE]) == {}


@pytest.mark.parametrize("cache", [None, cached()])
def test_an_agent_cannot_report_a_deleted_pod_of_another_node(cache: ObjectCache | None) -> None:
    written = recurrence() if cache else recurrence({"uid": "pod-uid", "node": "node-1"})
    with pytest.raises(OwnershipError, match="runs on node node-1, not on node-2"):
        node_pods(written, cache).attempts_of("node-2", [USAGE])
