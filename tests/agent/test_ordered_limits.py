"""Power limits that the operator orders for pods: an agent holds them as if the pods had requested them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.agents.agent_fixture import AgentFixture, new_agent_fixture, short_folder, until
from support.agents.node_pods import Cluster, running_node
from support.agents.pushed import OperatorStandIn, push_settings, running_operator
from support.control_plane.certificates import CertificateAuthority
from support.test_sets.parameters import exhaustive_after
from wattloop.wire.node_energy import GpuBounds, NodeAnswer, PodLimit


@dataclass
class Orders:
    """An operator that orders limits by pod uid, and knows the agent's last states.

    Attributes:
        limits: The limit to hold, by uid of the pod; None: none.
        states: The agent's latest report about each pod.
    """

    limits: dict[str, float | None] = field(default_factory=dict)
    bounds: tuple[GpuBounds, ...] | None = None
    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def answer(self, report: dict[str, Any]) -> tuple[int, bytes]:
        self.states |= {state["pod_uid"]: state for state in report["limits"]}
        limits = tuple(PodLimit(uid, watts) for uid, watts in self.limits.items())
        return 200, json.dumps(NodeAnswer((), self.bounds, limits).to_json()).encode()

    def state(self, uid: str) -> tuple[list[float] | None, float, str]:
        """Allowed limits, held limit and refusal of a pod."""
        state = self.states.get(uid, {"allowed_watts": None, "held_watts": 0.0, "refusal": ""})
        return state.get("allowed_watts"), state.get("held_watts", 0.0), state.get("refusal", "")


@dataclass
class OrderedNode:
    """A node whose agent pushes to an operator that orders limits."""

    cluster: Cluster
    orders: Orders
    operator: OperatorStandIn

    @property
    def limits(self) -> list[float]:
        return self.cluster.agent_fixture.limits

    @property
    def uuids(self) -> list[str]:
        return self.cluster.agent_fixture.uuids


@contextmanager
def ordered_node(agent_fixture: AgentFixture, version: str = "v2") -> Iterator[OrderedNode]:
    """With the cgroups of this version."""
    authority, folder = CertificateAuthority(), agent_fixture.folder / "push"
    folder.mkdir()
    pair = authority.server(["127.0.0.1"], ["operator.example"])
    orders = Orders()
    with running_operator(orders.answer, pair.serving_context(folder)) as operator:
        settings = push_settings(folder, operator, authority.certificate)
        with running_node(agent_fixture, version, **settings) as cluster:
            yield OrderedNode(cluster, orders, operator)


@pytest.fixture(scope="module")
def node_of_module() -> Iterator[OrderedNode]:
    with short_folder() as name, new_agent_fixture(Path(name)) as agent_fixture, ordered_node(agent_fixture) as node:
        yield node


@pytest.fixture
def node(node_of_module: OrderedNode) -> Iterator[OrderedNode]:
    """A node without pods and orders; these tests share its agent."""
    yield node_of_module
    node_of_module.cluster.clear()
    node_of_module.orders.limits = {}
    until(lambda: node_of_module.operator.reports[-1]["limits"] == [], "the agent has no order")
    node_of_module.orders.states = {}


@pytest.fixture(params=["v2"])
def own_node(request: pytest.FixtureRequest, agent_fixture: AgentFixture) -> Iterator[OrderedNode]:
    """A node for a test that changes more than pods and orders."""
    with ordered_node(agent_fixture, request.param) as node:
        yield node


@pytest.mark.parametrize("own_node", exhaustive_after(["v2", "v1"]), indirect=True)
def test_an_ordered_limit_is_the_pods_and_ends_with_its_last_process(own_node: OrderedNode) -> None:
    trainer = own_node.cluster.pod("trainer", own_node.uuids[:2])
    own_node.orders.limits[trainer.uid] = 250.0
    until(lambda: own_node.limits == [250, 250, 400], "the ordered limit")
    until(lambda: own_node.orders.state(trainer.uid) == ([100.0, 400.0], 250.0, ""), "the agent's report about it")
    # The pod's own processes own the lease as well.
    assert trainer.ask("leases") == (2, None)
    own_node.orders.limits[trainer.uid] = 300.0
    until(lambda: own_node.limits == [300, 300, 400], "the next ordered limit")
    trainer.processes[0].kill()
    until(lambda: own_node.limits == [400, 400, 400], "restored after the pod's last process")


def test_an_order_for_no_limit_reports_the_allowed_ones_and_releases_what_is_held(node: OrderedNode) -> None:
    trainer = node.cluster.pod("trainer", node.uuids[:1])
    node.orders.limits[trainer.uid] = None
    until(lambda: node.orders.state(trainer.uid) == ([100.0, 400.0], 0.0, ""), "the allowed limits")
    assert node.limits == [400, 400, 400]
    node.orders.limits[trainer.uid] = 150.0
    until(lambda: node.limits == [150, 400, 400], "the ordered limit")
    node.orders.limits[trainer.uid] = None
    until(lambda: node.limits == [400, 400, 400], "released")


def test_policies_bound_an_order_as_they_bound_the_pods_own_request(own_node: OrderedNode) -> None:
    stranger = own_node.cluster.pod("stranger", own_node.uuids[:1], namespace="search")
    trainer = own_node.cluster.pod("trainer", own_node.uuids[1:2])
    own_node.orders.bounds = (
        GpuBounds("one-team", namespaces=("default",)),
        GpuBounds("rack", power_limit_watts=(200.0, 300.0)),
    )
    stored = own_node.cluster.agent_fixture.state / "monitor" / "bounds.json"
    until(lambda: "rack" in stored.read_text(), "the policies on the node")
    own_node.orders.limits = {stranger.uid: 250.0, trainer.uid: 150.0}
    until(lambda: "lets pods of default" in own_node.orders.state(stranger.uid)[2], "the refusal of the namespace")
    until(lambda: "GPUPowerPolicy rack allows" in own_node.orders.state(trainer.uid)[2], "the refusal of the limit")
    own_node.orders.limits[trainer.uid] = None
    until(lambda: own_node.orders.state(trainer.uid) == ([200.0, 300.0], 0.0, ""), "the range of the policy")
    assert own_node.limits == [400, 400, 400]


@pytest.mark.parametrize("watts", exhaustive_after([200.0, None]))
def test_a_shared_gpu_gets_no_limit(node: OrderedNode, watts: float | None) -> None:
    sharer = node.cluster.pod("sharer", [f"{node.uuids[2]}::0"])
    node.orders.limits[sharer.uid] = watts
    until(lambda: "shared by time slicing or MIG" in node.orders.state(sharer.uid)[2], "the refusal")
    assert node.limits == [400, 400, 400]


def test_an_order_for_a_pod_without_gpus_or_of_another_node_changes_nothing(node: OrderedNode) -> None:
    idle = node.cluster.pod("idle", [])
    trainer = node.cluster.pod("trainer", node.uuids[:1])
    node.orders.limits = {idle.uid: 200.0, "11111111-2222-3333-4444-555555555555": 200.0, trainer.uid: 250.0}
    until(lambda: node.orders.state(trainer.uid)[1] == 250.0, "the limit of the pod with a GPU")
    assert node.limits == [250, 400, 400]
    assert node.orders.states.keys() == {trainer.uid}


def test_the_end_of_a_pod_is_no_refusal_of_its_limit(node: OrderedNode) -> None:
    trainer = node.cluster.pod("trainer", node.uuids[:1])
    node.orders.limits[trainer.uid] = 250.0
    until(lambda: node.orders.state(trainer.uid)[1] == 250.0, "the ordered limit")
    # The kubelet lists the pod no more, and its processes still run.
    del node.cluster.kubelet.pods["default", "trainer"]
    before = len(node.operator.reports)
    until(lambda: len(node.operator.reports) > before + 15, "more orders")
    assert node.orders.state(trainer.uid)[1:] == (250.0, "")


def test_a_limit_that_another_actor_sets_is_not_overridden(own_node: OrderedNode) -> None:
    trainer = own_node.cluster.pod("trainer", own_node.uuids[:1])
    own_node.orders.limits[trainer.uid] = 250.0
    until(lambda: own_node.orders.state(trainer.uid)[1] == 250.0, "the ordered limit")
    own_node.cluster.agent_fixture.gpus.set_power_limit_as_another_actor(0, 180)
    before = len(own_node.operator.reports)
    until(lambda: len(own_node.operator.reports) > before + 10, "more orders")
    assert own_node.limits[0] == 180
    assert own_node.orders.state(trainer.uid)[1:] == (
        0.0,
        f"GPU {own_node.uuids[0]} has a limit of 180 W instead of 250 W: it was reset, or another program has set it",
    )
    own_node.cluster.agent_fixture.gpus.set_power_limit_as_another_actor(0, 250)
    until(lambda: own_node.orders.state(trainer.uid)[1:] == (250.0, ""), "in force again")


def test_without_tls_no_order_is_trusted(agent_fixture: AgentFixture, tmp_path: Path) -> None:
    orders = Orders()
    with (
        running_operator(orders.answer) as operator,
        running_node(agent_fixture, "v2", **push_settings(tmp_path, operator)) as cluster,
    ):
        trainer = cluster.pod("trainer", agent_fixture.uuids[:1])
        orders.limits[trainer.uid] = 250.0
        until(lambda: any(report["usages"] for report in operator.reports), "the pod's usage")
        before = len(operator.reports)
        until(lambda: len(operator.reports) > before + 5, "more orders")
        assert agent_fixture.limits == [400, 400, 400]
        assert orders.states == {}
    assert "power limits of the operator are ignored" in agent_fixture.log.read_text()
