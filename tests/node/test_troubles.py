"""A condition names each failure around a training, and the bandit learns nothing from it.

It takes seconds, and the image as long as the kubelet tries to pull it; how many, each test prints.
"""

import re
from collections.abc import Iterator

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.control_plane.commands import ClusterCommand
from support.control_plane.objects import EVENT, POD
from support.control_plane.waiting import Object, wait_until
from support.kubernetes_node.node import NODE, About
from support.kubernetes_node.users import make_editor
from support.node.digits import Runs, container_of
from support.node.paced import paced_job, put_scripts
from support.node.waits import SLOWEST_SECONDS, await_condition, await_epoch, await_observations, observations_of

NAMESPACE = "troubles"
LOST = 15


@pytest.fixture(scope="module")
def user(node: About, kubectl: ClusterCommand, core: client.CoreV1Api) -> ClusterCommand:
    user = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    put_scripts(user, NAMESPACE)
    return user


@pytest.fixture(autouse=True)
def no_job_left(user: ClusterCommand) -> Iterator[None]:
    yield
    user("delete", "rtj", "--all", "--wait", "--timeout=150s", namespace=NAMESPACE)
    user("wait", "--for=delete", "pods", "--all", "--timeout=150s", namespace=NAMESPACE)


def start(user: ClusterCommand, cluster: DynamicClient, job: Object) -> Runs:
    """Applies a job and asks for its first run."""
    user.apply(job, namespace=NAMESPACE)
    runs = Runs(user, cluster, job["metadata"]["name"], NAMESPACE)
    runs.ask("run-0")
    return runs


def gpu_of(cluster: DynamicClient, attempt: str) -> str:
    """The GPU that the kubelet gave to the pod of an attempt."""

    def reported(pods: list[Object]) -> str | None:
        given = [
            device["resourceID"]
            for pod in pods
            for container in pod["status"].get("containerStatuses", [])
            for resource in container.get("allocatedResourcesStatus", [])
            for device in resource["resources"]
        ]
        return str(given[0]) if given else None

    return wait_until(
        cluster,
        POD,
        reported,
        f"the kubelet to say which GPU {attempt} has",
        namespace=NAMESPACE,
        label_selector=f"wattloop.dev/recurrence={attempt}",
        timeout_seconds=SLOWEST_SECONDS,
    )


@pytest.mark.exhaustive
def test_an_image_that_does_not_exist_is_named(user: ClusterCommand, cluster: DynamicClient) -> None:
    job = paced_job("no-image")
    container_of(job)["image"] = "localhost:1/nothing:1"
    runs = start(user, cluster, job)
    condition = await_condition(cluster, NAMESPACE, "no-image", "Running", status="False", message="ImagePull")
    assert "localhost:1/nothing:1" in condition["message"]
    assert observations_of(runs.status()) == 0


def test_a_missing_command_is_named_and_counts_against_no_batch_size(
    user: ClusterCommand, cluster: DynamicClient
) -> None:
    job = paced_job("no-command", retries=0)
    container_of(job)["command"] = ["/no/such/command"]
    runs = start(user, cluster, job)
    ended = await_condition(cluster, NAMESPACE, "no-command", "Complete", status="True", message="/no/such/command")
    assert ended["reason"] == "StartFailed"
    assert "could not be started" in ended["message"]
    assert "no batch size is blamed" in ended["message"]
    assert observations_of(runs.status()) == 0


@pytest.mark.exhaustive
def test_a_missing_volume_is_shown_by_the_command_that_the_condition_names(
    user: ClusterCommand, cluster: DynamicClient
) -> None:
    job = paced_job("no-volume")
    job["spec"]["template"]["spec"]["template"]["spec"]["volumes"] = [
        {"name": "scripts", "configMap": {"name": "nothing"}}
    ]
    start(user, cluster, job)
    condition = await_condition(
        cluster, NAMESPACE, "no-volume", "Running", status="False", message="kubectl describe pod no-volume-"
    )
    described = re.search(r"kubectl (describe pod \S+)", condition["message"])

    def message(events: list[Object]) -> bool:
        return any('configmap "nothing" not found' in event.get("message", "") for event in events)

    assert wait_until(
        cluster, EVENT, message, "the kubelet to name the volume", namespace=NAMESPACE, timeout_seconds=SLOWEST_SECONDS
    )
    assert 'configmap "nothing" not found' in user(*described[1].split(), namespace=NAMESPACE)


@pytest.mark.exhaustive
def test_an_unschedulable_pod_is_named(user: ClusterCommand, cluster: DynamicClient) -> None:
    runs = start(user, cluster, paced_job("too-wide", gpus=8))
    condition = await_condition(cluster, NAMESPACE, "too-wide", "Running", status="False", message="Unschedulable")
    assert "Insufficient nvidia.com/gpu" in condition["message"]
    assert observations_of(runs.status()) == 0


def test_an_unhealthy_gpu_is_named_and_a_crash_on_it_counts_against_no_batch_size(
    user: ClusterCommand, cluster: DynamicClient, gpus: Machine
) -> None:
    # Only the fault ends the first attempt.
    runs = start(user, cluster, paced_job("unhealthy", environment={"ENDLESS_ATTEMPT": "0"}))
    attempt = await_epoch(cluster, NAMESPACE, "unhealthy")["metadata"]["name"]
    gpu = gpu_of(cluster, attempt)
    try:
        # The device plugin's health check; the training continues.
        gpus.inject_fault("nvmlDeviceGetPowerUsage", code=LOST, gpu=gpu)
        named = await_condition(cluster, NAMESPACE, "unhealthy", "Running", status="True", message="unhealthy")
        assert gpu in named["message"]
        # Now it is lost altogether, and takes no work: the training ends with an error.
        gpus.inject_fault("*", code=LOST, gpu=gpu)
        ended = await_condition(cluster, NAMESPACE, "unhealthy", "Complete", status="True", message=gpu)
        assert ended["reason"] == "Disrupted"
        assert observations_of(runs.status()) == 0
        again = runs.await_recurrence(0)
    finally:
        gpus.clear_faults()
    assert again["status"]["result"] == "Reached"
    await_observations(cluster, NAMESPACE, "unhealthy", 1)


def test_a_drain_disrupts_an_attempt_and_the_next_one_waits_for_a_node(
    user: ClusterCommand, kubectl: ClusterCommand, cluster: DynamicClient
) -> None:
    # Only the drain ends the first attempt.
    runs = start(user, cluster, paced_job("drained", environment={"ENDLESS_ATTEMPT": "0"}))
    await_epoch(cluster, NAMESPACE, "drained")
    try:
        # The operator and the agent stay: this cluster has no other node for them.
        kubectl("drain", NODE, "--force", "--pod-selector=wattloop.dev/recurrence", "--timeout=150s")
        disrupted = await_condition(cluster, NAMESPACE, "drained", "Running", status="False", message="Disrupted")
        waiting = await_condition(
            cluster, NAMESPACE, "drained", "Running", status="False", message="Unschedulable", attempt=1
        )
        assert "Eviction" in disrupted["message"]
        assert "unschedulable" in waiting["message"]
        assert observations_of(runs.status()) == 0
    finally:
        kubectl("uncordon", NODE)
    assert runs.await_recurrence(0)["status"]["result"] == "Reached"
    await_observations(cluster, NAMESPACE, "drained", 1)
