"""A node's agent without its GPUs: the real ledger and the real push, of a GPU whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kubernetes import client

from support.agents.simulated_day import TrueGpu
from support.control_plane.kubelet import register_node
from support.control_plane.training import AUDIENCE, TokenOfPod
from support.control_plane.waiting import Object
from wattloop.node_energy import GpuBounds
from wattloop_agent.monitor.energy.attribution import Assignment, Observation
from wattloop_agent.monitor.energy.ledger import Ledger
from wattloop_agent.monitor.push.operator_api import OperatorApi
from wattloop_agent.monitor.push.pusher import Pusher

SERVICE_ACCOUNT = "wattloop-agent"
SAMPLES_A_SECOND = 10


def agent_pod(core: client.CoreV1Api, namespace: str, node: str, account: str = SERVICE_ACCOUNT) -> Object:
    """A pod of the agent's on a node; its service account is made where it is missing."""
    register_node(core, node)
    accounts = [each.metadata.name for each in core.list_namespaced_service_account(namespace).items if each.metadata]
    if account not in accounts:
        core.create_namespaced_service_account(
            namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name=account))
        )
    spec = client.V1PodSpec(
        service_account_name=account, node_name=node, containers=[client.V1Container(name="monitor", image="x:1")]
    )
    body = client.V1Pod(metadata=client.V1ObjectMeta(generate_name="agent-"), spec=spec)
    made: Object = core.api_client.sanitize_for_serialization(core.create_namespaced_pod(namespace, body))
    return made


def given(pod: Object, gpu: str, *, shared: bool = False) -> Assignment:
    """What the kubelet says: a pod's first container has this GPU."""
    metadata = pod["metadata"]
    container = pod["spec"]["containers"][0]["name"]
    return Assignment(metadata["uid"], metadata["namespace"], metadata["name"], container, gpu, shared)


class NodeAgent:
    """The agent of one node with one GPU.

    Args:
        node: The node.
        url: The operator's reporting API.
        pod: The agent's own pod, whose token it shows.
        token_of_pod: Gives that token.
        folder: Where the token is written.
        gpu: What the GPU truly does.
    """

    def __init__(
        self, node: str, url: str, pod: Object, token_of_pod: TokenOfPod, folder: Path, gpu: TrueGpu | None = None
    ) -> None:
        token = folder / f"{pod['metadata']['uid']}.token"
        token.write_text(token_of_pod(pod, AUDIENCE))
        self.gpu = gpu or TrueGpu()
        self.ledger = Ledger()
        self.bounds: list[tuple[GpuBounds, ...]] = []
        self.pusher = Pusher(OperatorApi(url, token), node, self.ledger, _Kept(self.bounds.append), 5.0)
        self._ticks = 0

    def live(self, seconds: float, *assignments: Assignment) -> None:
        """Let time pass in which these pods have the GPU."""
        for _ in range(round(seconds * SAMPLES_A_SECOND)):
            now = self._ticks / SAMPLES_A_SECOND
            self.ledger.sample([self.gpu.sample(now)], now + 0.003)
            self.ledger.observe(Observation(now, now + 0.003, assignments))
            self._ticks += 1

    def push(self) -> str:
        """Tell the operator; returns why it was not taken in, or nothing."""
        self.pusher.push()
        return self.pusher.state.problem


class _Kept:
    def __init__(self, keep: Callable[[tuple[GpuBounds, ...]], None]) -> None:
        self._keep = keep

    def replace(self, bounds: Sequence[GpuBounds]) -> None:
        self._keep(tuple(bounds))
