"""The example of a JobSet with the real controller of JobSets: its pods, their reports, its end."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import yaml

from support.control_plane.chart import REPOSITORY
from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob
from support.control_plane.fixtures import StartControllers
from support.control_plane.in_process_operator import TestClock
from support.control_plane.training import environment_of
from support.control_plane.waiting import Object, wait_until
from wattloop.wire.training_messages import Report
from wattloop_operator.domain.names import JobKey

EXAMPLE = REPOSITORY / "examples" / "pipeline" / "job-set.yaml"
PODS = 2
DEADLINE_SECONDS = 600


@pytest.fixture
def example(start_controllers: StartControllers, kubectl: ClusterCommand, driven: DrivenJob) -> DrivenJob:
    """The example, which runs once, with a progress deadline."""
    start_controllers("job-set")
    job = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    del job["spec"]["schedule"]
    job["spec"] |= {"runRequest": "first", "progressDeadlineSeconds": DEADLINE_SECONDS}
    kubectl.apply(job, namespace=driven.key.namespace)
    return replace(driven, key=JobKey(driven.key.namespace, job["metadata"]["name"]))


def await_status(example: DrivenJob, holds: Callable[[Object], bool], what: str) -> None:
    """Wait until the controller has written a status into its JobSet."""
    wait_until(
        example.cluster,
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        lambda job_sets: any(holds(each.get("status", {})) for each in job_sets),
        f"the JobSet to be {what}",
        namespace=example.key.namespace,
    )


def has_condition(kind: str) -> Callable[[Object], bool]:
    return lambda status: any(
        each["type"] == kind and each["status"] == "True" for each in status.get("conditions") or []
    )


def running_pods(example: DrivenJob) -> list[Object]:
    found = example.kubelet.pods_of_job(f"{example.name_of()}-stages-0", example.key.namespace, count=PODS)
    return [example.kubelet.run(pod) for pod in found]


def test_the_pods_of_a_job_set_find_each_other_and_report_until_the_target(
    example: DrivenJob, kubectl: ClusterCommand
) -> None:
    example.reconcile()
    pods = running_pods(example)
    # torchrun finds the first pod by its host name and the Service that the controller makes.
    service = kubectl.json("get", "service", example.name_of(), namespace=example.key.namespace)["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"]
    for index, pod in enumerate(sorted(pods, key=lambda each: str(each["spec"]["hostname"]))):
        variables = environment_of(pod)
        address = variables["PET_MASTER_ADDR"].replace("$(WATTLOOP_RECURRENCE)", variables["WATTLOOP_RECURRENCE"])
        assert address == f"{pod['spec']['hostname'].removesuffix(str(index))}0.{pod['spec']['subdomain']}"
        assert service["selector"].items() <= pod["metadata"]["labels"].items()
        assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == str(index)
        assert variables["WATTLOOP_PER_DEVICE_BATCH_SIZE"] == "16"
    example.reconcile()
    status = example.recurrence["status"]
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Running", "True")]
    assert status["startTime"]
    assert sorted(each["uid"] for each in status["pods"]) == sorted(each["metadata"]["uid"] for each in pods)
    assert status["imageDigest"].startswith("sha256:")
    assert status["devices"] == 4
    example.training_of(pods[0]).reach_target()
    for pod in pods:
        example.kubelet.succeed(pod)
    await_status(example, has_condition("Completed"), "completed")
    example.reconcile()
    assert example.results == ["Reached"]


def test_the_silent_rank_of_a_hung_job_set_is_named_with_its_pod_and_node(example: DrivenJob, clock: TestClock) -> None:
    example.reconcile()
    pods = running_pods(example)
    pods.sort(key=lambda pod: str(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))
    assert example.reconcile() is not None
    sent = Report(process="p", sequence=1, epoch=1.0, metric=2.5, evaluations=1, rank=2, ranks=4)
    assert example.training_of(pods[1]).channel.send_last(sent, 60.0) is not None
    clock.advance(DEADLINE_SECONDS - 120)
    assert example.reconcile() is not None
    assert example.results == [None]
    clock.advance(120)
    example.reconcile()
    hung, retried = example.recurrences
    assert hung["status"]["result"] == "Hung"
    silent, mute = (
        f"pod {pod['metadata']['name']} of index {index} on node" for index, pod in ((1, pods[1]), (0, pods[0]))
    )
    assert f"rank 2 in {silent} {example.kubelet.node_name} is silent longest" in hung["status"]["message"]
    assert f"; ranks 0, 1, 3 of 4 never reported, and no process in {mute}" in hung["status"]["message"]
    assert "result" not in retried["status"]
