"""Agents' reports about pods of their nodes, with real tokens, and their effect on the status."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.agents.simulated_day import TrueGpu
from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, await_job_end, first_of
from support.control_plane.fixtures import MakeJob, Operators
from support.control_plane.in_process_operator import InProcessOperator, TestClock
from support.control_plane.kubelet import NODE_NAME, Kubelet, register_node
from support.control_plane.node_agent import SERVICE_ACCOUNT, NodeAgent, agent_pod, assignment
from support.control_plane.objects import TRAINING_RECURRENCE
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.stored_attempts import cluster_progress
from support.control_plane.training import MAX_POWER_WATTS, TokenOfPod, Training
from support.control_plane.waiting import Object, wait_until
from wattloop.commands.settings import Address
from wattloop_operator.cluster.api import GPU_NODES, ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.auth.authorizers import ClusterAuthorizer, ClusterNodeAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.cluster.gpu_nodes import GpuNodeWriter
from wattloop_operator.cluster.reported_objects import ClusterNodePods, JobSettings
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.nodes import LimitOrders, NodeService
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store

OTHER_NODE = "wattloop-other-node"
# The power of the simulated training, with start-up and clean-up.
POWER = ((0.0, 50.0), (2.0, 200.0), (22.0, 50.0))


def with_gpu() -> dict[str, Any]:
    container = {"name": "train", "image": "example.invalid/train:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}


@pytest.fixture
def gpu_nodes(transport: HttpTransport, clock: TestClock) -> GpuNodeWriter:
    """The writer of what agents report."""
    return GpuNodeWriter(ClusterApi(transport), clock, time.monotonic)


@pytest.fixture
def nodes(
    transport: HttpTransport, store: Store, namespace: str, clock: TestClock, gpu_nodes: GpuNodeWriter
) -> Iterator[HttpService]:
    """The reporting API for agents, with the chart's rights."""
    api = ClusterApi(transport)
    authorizer = ClusterNodeAuthorizer(
        TokenReviews(api, time.monotonic), time.monotonic, f"{namespace}/{SERVICE_ACCOUNT}"
    )
    reports = ReportService(
        cluster_progress(api, store, clock),
        ClusterAuthorizer(api, TokenReviews(api, time.monotonic), time.monotonic),
        energies=store.pod_energies.of_attempt,
        utc_now=clock,
    )
    limits = LimitOrders(reports, JobSettings(api, time.monotonic).power_of, time.monotonic, sockets=False)
    pods = ClusterNodePods(api, time.monotonic)
    service = NodeService(
        authorizer.authorize,
        pods.attempts_of,
        store.pod_energies,
        clock,
        order_limit=limits.order,
        gpus_reported=gpu_nodes.receive,
    )
    served = HttpService("nodes", create_app(reports, service), Address("127.0.0.1", 0))
    served.start()
    yield served
    served.stop()


@pytest.fixture
def training(driven: DrivenJob) -> Training:
    """A training with a running pod."""
    return driven.start(template=with_gpu())


@pytest.fixture
def awaited(
    driven: DrivenJob, transport: HttpTransport, store: Store, nodes: HttpService, clock: TestClock
) -> DrivenJob:
    """A job whose operator waits for the agents' reports of an attempt that has ended."""
    operator = InProcessOperator(transport, store, nodes.url, clock, agent_report_timeout_seconds=10)
    return replace(driven, operator=operator)


@pytest.fixture
def stored_energy(store: Store, driven: DrivenJob) -> Callable[[], int]:
    """Returns the stored millijoules of the training's attempt."""

    def millijoules() -> int:
        uid = driven.job["metadata"]["uid"]
        return sum(each.energy_millijoules for each in store.pod_energies.of_job(uid, 0).get((0, 0), ()))

    return millijoules


@pytest.fixture
def agent_on(
    core: client.CoreV1Api, token_of_pod: TokenOfPod, tmp_path: Path, namespace: str, nodes: HttpService
) -> Callable[..., NodeAgent]:
    """An agent whose pod runs on one node and that reports for this or another node."""

    def made(node: str, *, speaks_of: str = "", account: str = SERVICE_ACCOUNT) -> NodeAgent:
        pod = agent_pod(core, namespace, node, account)
        return NodeAgent(speaks_of or node, nodes.url, pod, token_of_pod, tmp_path)

    return made


def test_an_agent_reports_the_pods_of_its_own_node(
    agent_on: Callable[..., NodeAgent], training: Training, stored_energy: Callable[[], int]
) -> None:
    agent = agent_on(NODE_NAME)
    agent.advance(5, assignment(training.pod, agent.gpu.uuid))
    assert agent.push() == ""
    (reported,) = agent.ledger.usages()
    assert stored_energy() == reported.energy_millijoules > 400_000


def test_an_agent_of_another_node_can_report_neither_this_node_nor_its_pods(
    agent_on: Callable[..., NodeAgent], training: Training, stored_energy: Callable[[], int]
) -> None:
    other_node_agent = agent_on(OTHER_NODE, speaks_of=NODE_NAME)
    other_node_agent.advance(5, assignment(training.pod, other_node_agent.gpu.uuid))
    assert f"runs on node {OTHER_NODE}, not on {NODE_NAME}" in other_node_agent.push()
    wrong_node_agent = agent_on(OTHER_NODE)
    wrong_node_agent.advance(5, assignment(training.pod, wrong_node_agent.gpu.uuid))
    assert f"runs on node {NODE_NAME}, not on {OTHER_NODE}" in wrong_node_agent.push()
    assert stored_energy() == 0
    assert len(wrong_node_agent.ledger.usages()) == 1


def test_the_gpus_of_a_node_are_an_object_that_its_own_agent_fills_and_that_goes_with_the_node(
    core: client.CoreV1Api,
    cluster: DynamicClient,
    kubectl: ClusterCommand,
    agent_on: Callable[..., NodeAgent],
    gpu_nodes: GpuNodeWriter,
    namespace: str,
) -> None:
    node = f"gpus-{namespace}"
    register_node(core, node)
    agent, hostile = agent_on(node), agent_on(NODE_NAME, speaks_of=node)
    for _ in range(2):
        hostile.advance(5)
        assert f"runs on node {NODE_NAME}, not on {node}" in hostile.push()
    gpu_nodes.write_due()
    assert kubectl.json("get", "gpunodes", f"--field-selector=metadata.name={node}")["items"] == []
    for _ in range(2):
        agent.advance(5)
        assert agent.push() == ""
    gpu_nodes.write_due()
    status = kubectl.json("get", "gpunode", node)["status"]
    assert (status["gpuCount"], status["freeGpus"], status["freePowerWatts"]) == (1, 1, status["powerWatts"])
    assert float(status["powerWatts"]) == pytest.approx(100.0, rel=0.05)
    assert float(status["gpus"][0]["maxLimitWatts"]) == MAX_POWER_WATTS
    heading, line = kubectl("get", "gpunodes", node).splitlines()
    assert heading.split()[1:3] == ["GPUS", "FREE"]
    assert line.split()[:4] == [node, "1", "1", status["powerWatts"]]
    core.delete_node(node)
    wait_until(
        cluster,
        (GPU_NODES.api_version, GPU_NODES.kind),
        lambda objects: not objects,
        "the object of a node that is gone",
        field_selector=f"metadata.name={node}",
        timeout_seconds=240.0,
    )


def test_another_service_account_can_report_no_node(
    agent_on: Callable[..., NodeAgent], training: Training, stored_energy: Callable[[], int], namespace: str
) -> None:
    other_account_agent = agent_on(NODE_NAME, account="other-agent")
    other_account_agent.advance(5, assignment(training.pod, other_account_agent.gpu.uuid))
    assert f"{namespace}/other-agent is not the agents' service account" in other_account_agent.push()
    assert stored_energy() == 0


def test_a_training_pod_can_report_no_node(
    training: Training, nodes: HttpService, token_of_pod: TokenOfPod, tmp_path: Path, stored_energy: Callable[[], int]
) -> None:
    hostile = NodeAgent(NODE_NAME, nodes.url, training.pod, token_of_pod, tmp_path)
    hostile.advance(5, assignment(training.pod, hostile.gpu.uuid))
    assert "is not the agents' service account" in hostile.push()
    assert stored_energy() == 0


def test_a_token_for_the_api_server_is_not_accepted_for_reports(
    core: client.CoreV1Api,
    training: Training,
    nodes: HttpService,
    token_of_pod: TokenOfPod,
    tmp_path: Path,
    namespace: str,
) -> None:
    pod = agent_pod(core, namespace, NODE_NAME)
    audience = "https://kubernetes.default.svc.cluster.local"
    agent = NodeAgent(NODE_NAME, nodes.url, pod, lambda each, _: token_of_pod(each, audience), tmp_path)
    assert "refused with HTTP 401" in agent.push()


def test_the_energy_of_a_pod_that_only_claims_to_train_is_not_stored(
    core: client.CoreV1Api,
    agent_on: Callable[..., NodeAgent],
    training: Training,
    stored_energy: Callable[[], int],
    namespace: str,
) -> None:
    labels = {"wattloop.dev/recurrence": training.pod["metadata"]["labels"]["wattloop.dev/recurrence"]}
    spec = client.V1PodSpec(containers=[client.V1Container(name="x", image="x:1")], node_name=NODE_NAME)
    body = client.V1Pod(metadata=client.V1ObjectMeta(name="other-node-pod", labels=labels), spec=spec)
    core.create_namespaced_pod(namespace, body)
    pod = core.api_client.sanitize_for_serialization(core.read_namespaced_pod("other-node-pod", namespace))
    agent = agent_on(NODE_NAME)
    agent.advance(5, assignment(pod, agent.gpu.uuid))
    assert agent.push() == ""
    assert stored_energy() == 0


def test_an_attempt_waits_for_its_agent_and_its_energies_are_deleted_with_its_recurrence(
    awaited: DrivenJob,
    store: Store,
    clock: TestClock,
    agent_on: Callable[..., NodeAgent],
    stored_energy: Callable[[], int],
) -> None:
    limits = {"successfulRunsHistoryLimit": 0, "failedRunsHistoryLimit": 0, "retries": 0}
    training = awaited.start(template=with_gpu(), **limits)
    agent = agent_on(NODE_NAME)
    agent.advance(5, assignment(training.pod, agent.gpu.uuid))
    assert agent.push() == ""
    awaited.kubelet.fail(training.pod)
    wake_at, recurrence = awaited.after_end(), awaited.recurrence
    assert running_because(recurrence["status"]) == "EnergyAwaited"
    assert wake_at is not None
    assert stored_energy() > 0
    awaited.operator.restart()
    clock.advance(11)
    awaited.reconcile()
    assert awaited.recurrences == []
    assert stored_energy() == 0
    (record,) = store.observations.of_job(recurrence["spec"]["jobRef"]["uid"])
    (reported,) = agent.ledger.usages()
    assert record.energy_joules == reported.energy_millijoules / 1000


def test_a_report_about_a_deleted_pod_after_the_outcome_adds_late_usage(
    awaited: DrivenJob, store: Store, clock: TestClock, core: client.CoreV1Api, agent_on: Callable[..., NodeAgent]
) -> None:
    training = awaited.start(template=with_gpu(), retries=0)
    awaited.reconcile()
    agent, wrong_node_agent = agent_on(NODE_NAME), agent_on(OTHER_NODE)
    for each in (agent, wrong_node_agent):
        each.advance(5, assignment(training.pod, each.gpu.uuid))
    # Deleted before an agent has reported its usage.
    awaited.kubelet.fail(training.pod)
    await_job_end(awaited.cluster, awaited.key, awaited.name_of())
    metadata = training.pod["metadata"]
    core.delete_namespaced_pod(metadata["name"], metadata["namespace"], grace_period_seconds=0)
    for each in (agent, wrong_node_agent):
        each.advance(3)
    clock.advance(11)
    awaited.reconcile()
    status = awaited.recurrence["status"]
    assert (status["result"], status.get("usage")) == ("Disrupted", None)

    assert f"runs on node {NODE_NAME}, not on {OTHER_NODE}" in wrong_node_agent.push()
    (reported,) = agent.ledger.usages()
    assert agent.push() == ""
    for life in ("this one", "another one"):
        awaited.reconcile()
        recurrence = awaited.recurrence
        usage = recurrence["status"]["usage"]
        assert Decimal(usage["gpuEnergyJoules"]) == Decimal(reported.energy_millijoules) / 1000 > 400, life
        assert awaited.job["status"]["totals"]["gpuEnergyJoules"] == usage["gpuEnergyJoules"]
        awaited.operator.restart()
    assert recurrence["status"]["result"] == "Disrupted"
    (record,) = store.observations.of_job(recurrence["spec"]["jobRef"]["uid"])
    assert record.energy_joules == 0


@pytest.fixture
def start_operator(namespace: str, operators: Operators) -> Callable[[], OperatorProcess]:
    """Starts the operator, each time with the same database and address."""
    return operators(f"--agent-service-account={namespace}/{SERVICE_ACCOUNT}", "--agent-report-timeout-seconds=60")


def test_the_status_has_the_agents_energy_even_if_the_operator_was_killed(
    start_operator: Callable[[], OperatorProcess],
    make_job: MakeJob,
    core: client.CoreV1Api,
    cluster: DynamicClient,
    kubelet: Kubelet,
    token_of_pod: TokenOfPod,
    tmp_path: Path,
    namespace: str,
) -> None:
    operator = start_operator()
    url = operator.url_of("reporting API")
    key = make_job(template=with_gpu())
    (pod,) = kubelet.pods_of_job(first_of(key), namespace)
    training = Training(kubelet.run(pod), token_of_pod, tmp_path)
    mine = agent_pod(core, namespace, NODE_NAME)
    gpu = TrueGpu(changes=POWER, uuid=f"GPU-{pod['metadata']['uid']}")
    agent = NodeAgent(NODE_NAME, url, mine, token_of_pod, tmp_path, gpu)
    has = assignment(pod, gpu.uuid)

    agent.advance(1)
    agent.advance(11, has)
    training.report(1.0, 0.5)
    assert agent.push() == ""
    operator.kill()
    agent.advance(10, has)
    assert agent.push() != ""
    start_operator().await_line(" leads")
    assert agent.push() == ""
    assert agent.push() == ""
    training.report(2.0, 0.95, finished=True)
    kubelet.succeed(pod)
    agent.advance(2, has)
    await_recurrence(cluster, namespace, lambda status: running_because(status) == "EnergyAwaited", "its final report")
    agent.advance(3)
    (reported,) = agent.ledger.usages()
    assert reported.ended
    assert agent.push() == ""
    assert agent.ledger.usages() == ()

    status = await_recurrence(cluster, namespace, lambda status: "result" in status, "its outcome")
    usage = status["usage"]
    assert status["result"] == "Reached"
    assert Decimal(usage["gpuEnergyJoules"]) == Decimal(reported.energy_millijoules) / 1000
    assert (usage["energySource"], usage["attribution"]) == ("Agent", "Exclusive")
    assert Decimal(usage["coveragePercent"]) == 100
    # The GPU's true energy while it was the pod's, from the 1st second to the 24th.
    true_energy = gpu.energy(24.0) - gpu.energy(1.0)
    assert abs(float(usage["gpuEnergyJoules"]) - true_energy) <= float(usage["uncertaintyJoules"])
    (agrees,) = (each for each in status["conditions"] if each["type"] == "EnergyAgrees")
    assert agrees["status"] == "True"
    assert agrees["message"].startswith("the processes counted 4000.0 J, the node agents ")


def running_because(status: Object) -> str:
    return next((each["reason"] for each in status.get("conditions", []) if each["type"] == "Running"), "")


def await_recurrence(cluster: DynamicClient, namespace: str, holds: Callable[[Object], bool], what: str) -> Object:
    def held(recurrences: list[Object]) -> Object | None:
        return next((each["status"] for each in recurrences if holds(each.get("status") or {})), None)

    found: Object = wait_until(cluster, TRAINING_RECURRENCE, held, what, namespace=namespace)
    return found
