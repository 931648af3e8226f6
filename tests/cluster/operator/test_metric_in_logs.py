"""An operator reads the metric from pod logs through a real API server; a simulated kubelet serves them."""

from collections.abc import Callable, Iterator

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import MakeJob, Operators
from support.control_plane.kubelet import Kubelet
from support.control_plane.log_server import LogServer
from support.control_plane.objects import JOB, RECURRING_TRAINING_JOB, TRAINING_RECURRENCE
from support.control_plane.waiting import Object, wait_until
from wattloop_operator.domain.names import JobKey, recurrence_name, slot_of_request

READ_LOGS = "--read-pod-logs=yes"
LOGS = {"source": "Logs", "pattern": r"epoch (?P<epoch>\d+): accuracy (?P<metric>\S+)"}


@pytest.fixture
def logs() -> Iterator[LogServer]:
    with LogServer() as server:
        yield server


@pytest.fixture
def node(cluster: DynamicClient, core: client.CoreV1Api, logs: LogServer) -> Iterator[Kubelet]:
    with Kubelet(cluster, "node-with-logs") as kubelet:
        logs.serve_node(core, kubelet.node_name)
        yield kubelet


@pytest.fixture
def right_to_logs(kubectl: ClusterCommand, namespace: str, release: Release) -> None:
    kubectl("create", "role", "logs", "--verb=get", "--resource=pods/log", namespace=namespace)
    account = f"--serviceaccount={release.namespace}:{release.operator_service_account}"
    kubectl("create", "rolebinding", "logs", "--role=logs", account, namespace=namespace)


def await_status(cluster: DynamicClient, key: JobKey, name: str, holds: Callable[[Object], bool]) -> Object:
    def status(found: list[Object]) -> Object | None:
        return next((each["status"] for each in found if holds(each.get("status", {}))), None)

    return wait_until(
        cluster,
        TRAINING_RECURRENCE,
        status,
        f"the expected status of {name}",
        namespace=key.namespace,
        field_selector=f"metadata.name={name}",
    )


def epoch_is(epoch: int) -> Callable[[Object], bool]:
    return lambda status: status.get("progress", {}).get("epoch") == str(epoch)


@pytest.mark.usefixtures("right_to_logs")
def test_a_training_that_prints_its_metric_is_ended_at_its_target_and_read_on_by_the_next_operator(
    operators: Operators, make_job: MakeJob, node: Kubelet, logs: LogServer, cluster: DynamicClient
) -> None:
    start = operators(READ_LOGS)
    operator = start()
    key = make_job(reporting=LOGS)
    name = recurrence_name(key.name, 0, slot_of_request("first"), 0)
    (pod,) = node.pods_of_job(name, key.namespace)
    assert [volume["name"] for volume in pod["spec"].get("volumes", ()) if "wattloop" in volume["name"]] == []
    node.run(pod)
    writer = pod["metadata"]["name"]
    logs.write(writer, "starting", "epoch 1: accuracy 0.3", "epoch 2: accuracy 0.5")
    await_status(cluster, key, name, epoch_is(2))
    operator.kill()
    logs.write(writer, "epoch 3: accuracy 0.6")
    start()
    await_status(cluster, key, name, epoch_is(3))
    # The next operator reads the log again from its beginning: what was read of it is not stored.
    assert "sinceTime" not in logs.requests[-1]
    logs.write(writer, "epoch 4: accuracy 0.92")
    status = await_status(cluster, key, name, lambda status: "result" in status)
    assert (status["result"], status["epochs"]) == ("Reached", "4")
    assert [point[0] for point in status["progress"]["curve"]] == ["1", "2", "3", "4"]
    # The Job is deleted after the result is written.
    wait_until(cluster, JOB, lambda jobs: not jobs, "no Job to be left", namespace=key.namespace)


@pytest.mark.usefixtures("right_to_logs")
def test_the_last_lines_of_a_training_that_ends_by_itself_are_in_its_outcome(
    operators: Operators, make_job: MakeJob, node: Kubelet, logs: LogServer, cluster: DynamicClient
) -> None:
    operators(READ_LOGS)()
    key = make_job(reporting=LOGS, retries=0)
    name = recurrence_name(key.name, 0, slot_of_request("first"), 0)
    (pod,) = node.pods_of_job(name, key.namespace)
    running = node.run(pod)
    logs.write(pod["metadata"]["name"], "epoch 1: accuracy 0.3")
    await_status(cluster, key, name, epoch_is(1))
    node.succeed(running)
    logs.write(pod["metadata"]["name"], "epoch 2: accuracy 0.7")
    logs.end(pod["metadata"]["name"])
    status = await_status(cluster, key, name, lambda status: "result" in status)
    assert (status["result"], status["progress"]["metric"]) == ("Exhausted", "0.7")


def test_without_the_setting_the_job_says_how_to_turn_it_on(
    operators: Operators, make_job: MakeJob, cluster: DynamicClient
) -> None:
    operators()()
    key = make_job(reporting=LOGS)

    def refused(jobs: list[Object]) -> str | None:
        conditions = [each for job in jobs for each in job.get("status", {}).get("conditions", ())]
        return next((each["message"] for each in conditions if each["reason"] == "NotSupported"), None)

    message = wait_until(
        cluster,
        RECURRING_TRAINING_JOB,
        refused,
        "the condition Ready of the job",
        namespace=key.namespace,
        field_selector=f"metadata.name={key.name}",
    )
    assert "operator.readPodLogs" in message
