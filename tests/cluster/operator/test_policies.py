"""GPUPowerPolicies and nodes on a real API server, with exactly the operator's rights."""

import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import Operators
from support.control_plane.in_process_operator import TestClock
from support.control_plane.kubelet import NODE_NAME
from support.control_plane.node_agent import SERVICE_ACCOUNT, NodeAgent, agent_pod
from support.control_plane.objects import GPU_POWER_POLICY
from support.control_plane.stored_attempts import cluster_progress
from support.control_plane.training import TokenOfPod
from support.control_plane.waiting import wait_until
from wattloop.commands.settings import Address
from wattloop.wire.node_energy import GpuBounds
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.auth.authorizers import ClusterAuthorizer, ClusterNodeAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.cluster.gpu_power_policies import (
    LABELS_SECONDS,
    POLICIES_SECONDS,
    NodePolicies,
    write_policy_statuses,
)
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.reported_objects import ClusterNodePods
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.nodes import NodeService
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store

MakePolicy = Callable[..., str]
NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def pool() -> str:
    """The value of a label that only this test's nodes and policies have."""
    return f"pool-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def node(core: client.CoreV1Api, pool: str) -> Iterator[str]:
    """A node with that label."""
    metadata = client.V1ObjectMeta(name=f"node-{pool}", labels={"pool": pool})
    core.create_node(client.V1Node(metadata=metadata))
    yield metadata.name
    core.delete_node(metadata.name)


@pytest.fixture
def make_policy(kubectl: ClusterCommand, pool: str) -> Iterator[MakePolicy]:
    """Applies a policy of this test's pool."""
    made: set[str] = set()

    def make(name: str, **spec: Any) -> str:
        full = f"{name}-{pool}"
        made.add(full)
        selecting = {"nodeSelector": {"pool": pool}, **spec}
        kubectl.apply(
            {
                "apiVersion": "wattloop.dev/v1alpha1",
                "kind": "GPUPowerPolicy",
                "metadata": {"name": full},
                "spec": selecting,
            }
        )
        return full

    yield make
    for name in made:
        kubectl("delete", "gpupowerpolicy", name, "--ignore-not-found")


def test_a_node_has_the_bounds_of_its_policies_until_they_change(
    transport: HttpTransport, node: str, make_policy: MakePolicy, kubectl: ClusterCommand
) -> None:
    now = 0.0
    known = NodePolicies(ClusterApi(transport), lambda: now)
    fleet = make_policy("fleet", powerLimit={"minWatts": 150, "maxWatts": 350})
    make_policy("elsewhere", nodeSelector={"pool": "none"}, powerLimit={"maxWatts": 200})
    assert known.bounds_for_node(node) == (GpuBounds(fleet, power_limit_watts=(150.0, 350.0)),)
    make_policy("fleet", powerLimit={"minWatts": 150, "maxWatts": 300}, namespaces=["vision"])
    now = LABELS_SECONDS
    assert known.bounds_for_node(node) == (GpuBounds(fleet, namespaces=("vision",), power_limit_watts=(150.0, 300.0)),)
    kubectl("delete", "gpupowerpolicy", fleet)
    now = 2 * LABELS_SECONDS
    assert known.bounds_for_node(node) == ()


def test_a_policys_status_has_the_number_of_its_nodes(
    transport: HttpTransport, node: str, make_policy: MakePolicy, kubectl: ClusterCommand
) -> None:
    api = ClusterApi(transport)
    fleet = make_policy("fleet", powerLimit={"maxWatts": 350})
    nowhere = make_policy("nowhere", nodeSelector={"pool": "none"}, namespaces=["vision"])
    cache = ObjectCache()

    def write() -> None:
        for each in kubectl.json("get", "gpupowerpolicies")["items"]:
            cache.put_policy(each)
        write_policy_statuses(api, cache, lambda: NOW)

    write()
    status = kubectl.json("get", "gpupowerpolicy", fleet)["status"]
    assert (status["nodes"], status["observedGeneration"]) == (1, 1)
    assert status["conditions"][0]["reason"] == "NodesSelected"
    status = kubectl.json("get", "gpupowerpolicy", nowhere)["status"]
    assert (status["nodes"], status["conditions"][0]["status"]) == (0, "False")
    assert "No node has the labels pool=none" in status["conditions"][0]["message"]
    version = kubectl.json("get", "gpupowerpolicy", fleet)["metadata"]["resourceVersion"]
    write()
    assert kubectl.json("get", "gpupowerpolicy", fleet)["metadata"]["resourceVersion"] == version, "logged once"
    make_policy("fleet", powerLimit={"maxWatts": 300})
    write()
    assert kubectl.json("get", "gpupowerpolicy", fleet)["status"]["observedGeneration"] == 2


def test_only_the_agents_of_a_policys_nodes_get_it_at_their_next_report(
    transport: HttpTransport,
    store: Store,
    namespace: str,
    node: str,
    core: client.CoreV1Api,
    token_of_pod: TokenOfPod,
    make_policy: MakePolicy,
    tmp_path: Path,
) -> None:
    api = ClusterApi(transport)
    now = 0.0
    known = NodePolicies(api, lambda: now)
    authorizer = ClusterNodeAuthorizer(
        TokenReviews(api, time.monotonic), time.monotonic, f"{namespace}/{SERVICE_ACCOUNT}"
    )
    pods = ClusterNodePods(api, time.monotonic)
    service = NodeService(
        authorizer.authorize, pods.attempts_of, store.pod_energies, lambda: NOW, bounds=known.bounds_for_node
    )
    reports = ReportService(
        cluster_progress(api, store, TestClock()),
        ClusterAuthorizer(api, TokenReviews(api, time.monotonic), time.monotonic),
    )
    fleet = make_policy("fleet", powerLimit={"maxWatts": 300})
    served = HttpService("nodes", create_app(reports, service), Address("127.0.0.1", 0))
    served.start()
    try:
        ours, other = (
            NodeAgent(name, served.url, agent_pod(core, namespace, name), token_of_pod, tmp_path)
            for name in (node, NODE_NAME)
        )
        for agent in (ours, other):
            agent.advance(1)
            assert agent.push() == ""
        assert ours.bounds == [(GpuBounds(fleet, power_limit_watts=(0.0, 300.0)),)]
        assert other.bounds == [()]
        make_policy("fleet", powerLimit={"maxWatts": 250})
        now = POLICIES_SECONDS
        ours.advance(1)
        assert ours.push() == ""
        assert ours.bounds[-1] == (GpuBounds(fleet, power_limit_watts=(0.0, 250.0)),)
    finally:
        served.stop()


def test_the_leader_updates_the_statuses_of_policies(
    operators: Operators, node: str, make_policy: MakePolicy, cluster: DynamicClient
) -> None:
    fleet = make_policy("fleet", powerLimit={"maxWatts": 300})
    process = operators()()
    wait_until(
        cluster,
        GPU_POWER_POLICY,
        lambda policies: [each.get("status", {}).get("nodes") for each in policies] == [1],
        f"the status of {fleet} to say that it holds on {node}",
        field_selector=f"metadata.name={fleet}",
    )
    process.stop()
    assert process.exit_code == 130
