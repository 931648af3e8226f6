"""Jobs, pods and other workloads that are many, or as large or deep as etcd takes, beside a victim's job."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import ControlPlane
from support.control_plane.driven_job import first_of
from support.control_plane.fixtures import MakeJob, Operators, Send
from support.control_plane.job_manifest import job_manifest
from support.control_plane.memory_cgroup import MemoryCgroup
from support.control_plane.objects import EVENT
from support.control_plane.pod_runner import PodRunner
from support.control_plane.train_set import GROUP, WORKLOAD
from support.control_plane.victims import assert_within_memory, assert_works, await_reached
from support.control_plane.waiting import wait_until
from wattloop_operator.domain.names import JobKey

LABELS = {"wattloop.dev/recurrence": "none", "wattloop.dev/job": "none"}
DEEP_TEXT = "[" * 60_000 + "]" * 60_000
DEEP = '{"a":' * 3000 + "1" + "}" * 3000
# In etcd 1.2 MB and 0.7 MB. The JSON of the second has 2.9 MB, the most that the API server reads.
ARGUMENTS = ["" for _ in range(600_000)]
GATES = [{"conditionType": "a"} for _ in range(130_000)]
OBJECTS = 12
# A job with these takes 110 kB of a namespace's share.
PARAMETERS = [
    {"name": f"p{number}", "default": f"{'x' * 250}0", "candidates": [f"{'x' * 250}{each:x}" for each in range(16)]}
    for number in range(2)
]
JOBS = 700
LONG_STATUSES, MESSAGE = 20, "x" * 250_000


def pod_spec(**fields: Any) -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"} | fields]}


def large_objects(namespace: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A Job and a Pod: the resource, the path and the object."""
    metadata = {"name": "large-00", "labels": LABELS, "annotations": {"deep": DEEP_TEXT}}
    spec = {"suspend": True, "template": {"spec": pod_spec(args=ARGUMENTS)}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    yield "jobs", f"/apis/batch/v1/namespaces/{namespace}/jobs", job
    gated = pod_spec() | {"readinessGates": GATES}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": gated}
    yield "pods", f"/api/v1/namespaces/{namespace}/pods", pod


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_the_largest_jobs_and_pods_leave_the_operator_within_the_memory_of_the_chart(
    container: MemoryCgroup,
    operators: Operators,
    make_job: MakeJob,
    other: str,
    send: Send,
    control_plane: ControlPlane,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    start = operators(cgroup=container)
    first = start()
    key = make_job()
    for resource, path, body in large_objects(other):
        made = send("POST", path, "application/json", json.dumps(body, separators=(",", ":")).encode())
        control_plane.copy_object(resource, json.loads(made), [f"large-{number:02}" for number in range(1, OBJECTS)])
    assert_within_memory(first, container, cluster, key, 1)
    first.stop()
    second = start()
    make_job(runRequest="second")
    assert_within_memory(second, container, cluster, key, 2)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("train_sets")
def test_a_workload_that_its_owner_nests_deep_delays_no_other_job(
    container: MemoryCgroup,
    operators: Operators,
    make_job: MakeJob,
    other: str,
    send: Send,
    kubectl: ClusterCommand,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    operator = operators(cgroup=container)()
    kubectl.apply(job_manifest("hostile", template=WORKLOAD), namespace=other)
    hostile = first_of(JobKey(other, "hostile"))
    wait_until(cluster, (f"{GROUP}/v1", "TrainSet"), bool, "the hostile run", namespace=other)
    path = f"/apis/{GROUP}/v1/namespaces/{other}/trainsets/{hostile}"
    send("PATCH", path, "application/merge-patch+json", f'{{"spec":{{"x":{DEEP}}}}}'.encode())
    operator.await_line("nested more than 200 levels deep")
    key = make_job()
    await_reached(cluster, key, 1)
    assert_works(operator)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_namespace_of_many_objects_is_read_up_to_its_share_and_the_operator_stays_within_its_memory(
    container: MemoryCgroup,
    operators: Operators,
    make_job: MakeJob,
    other: str,
    send: Send,
    control_plane: ControlPlane,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    start = operators(cgroup=container)
    first = start()
    key = make_job()
    path = f"/apis/wattloop.dev/v1alpha1/namespaces/{other}/recurringtrainingjobs"
    fields = {"batchSize": {"default": 64, "candidates": [64]}, "parameters": PARAMETERS, "suspend": True}
    made = send("POST", path, "application/json", json.dumps(job_manifest("many-000", **fields)).encode())
    copies = [f"many-{number:03}" for number in range(1, JOBS)]
    control_plane.copy_object("wattloop.dev/recurringtrainingjobs", json.loads(made), copies)
    wait_until(
        cluster,
        EVENT,
        lambda events: any("the objects of namespace" in str(each.get("message")) for each in events),
        "an Event that says that the namespace has no room",
        namespace=other,
    )
    pods = f"/api/v1/namespaces/{other}/pods"
    for number in range(LONG_STATUSES):
        pod = {"metadata": {"name": f"pod-{number}", "labels": LABELS}, "spec": pod_spec()}
        send("POST", pods, "application/json", json.dumps(pod).encode())
        status = json.dumps({"status": {"message": MESSAGE}}).encode()
        send("PATCH", f"{pods}/pod-{number}/status", "application/merge-patch+json", status)
    first.await_line("its further jobs, workloads and pods are passed over")
    assert_within_memory(first, container, cluster, key, 1)
    first.stop()
    second = start()
    make_job(runRequest="second")
    assert_within_memory(second, container, cluster, key, 2)
    # It would handle the end of each of them.
    second.stop()
