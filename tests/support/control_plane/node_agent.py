"""A node's agent with a simulated GPU whose energy is known: its ledger and its push are real."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes import client

from support.agents.simulated_day import TrueGpu
from support.control_plane.kubelet import register_node
from support.control_plane.training import AUDIENCE, MAX_POWER_WATTS, TokenOfPod
from support.control_plane.waiting import Object
from wattloop.wire.node_energy import GpuBounds, PodLimit, PodLimitState
from wattloop_agent.monitor.energy.attribution import Assignment, AssignmentObservation
from wattloop_agent.monitor.energy.ledger import Ledger
from wattloop_agent.monitor.gpu_sampler import GpuStatus
from wattloop_agent.monitor.push.pusher import NodeReportApi, Pusher

SERVICE_ACCOUNT = "wattloop-agent"
SAMPLES_PER_SECOND = 10
PUSHES = 12
# The power limits that pods may request.
ALLOWED_WATTS = (100.0, MAX_POWER_WATTS)


def agent_pod(core: client.CoreV1Api, namespace: str, node: str, account: str = SERVICE_ACCOUNT) -> Object:
    """A pod of the agent on a node; creates its service account if missing."""
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
    created: Object = core.api_client.sanitize_for_serialization(core.create_namespaced_pod(namespace, body))
    return created


def assignment(pod: Object, gpu: str, *, shared: bool = False) -> Assignment:
    """The kubelet's assignment of a GPU to a pod's first container."""
    metadata = pod["metadata"]
    container = pod["spec"]["containers"][0]["name"]
    return Assignment(metadata["uid"], metadata["namespace"], metadata["name"], container, gpu, shared)


class NodeAgent:
    """The agent of one node with one GPU.

    Args:
        pod: The agent's pod, whose token it sends.
        gpu: The GPU's true power and energy.
    """

    def __init__(
        self, node: str, url: str, pod: Object, token_of_pod: TokenOfPod, folder: Path, gpu: TrueGpu | None = None
    ) -> None:
        token = folder / f"{pod['metadata']['uid']}.token"
        token.write_text(token_of_pod(pod, AUDIENCE))
        self.gpu = gpu or TrueGpu()
        self.ledger = Ledger()
        self.bounds: list[tuple[GpuBounds, ...]] = []
        self._ticks = 0
        self.orders = ObeyedOrders(lambda: self._ticks / SAMPLES_PER_SECOND)
        limits = [GpuStatus(self.gpu.uuid, "", 0.0, max_power_limit_watts=MAX_POWER_WATTS)]
        self.pusher = Pusher(
            _TrustedApi(url, token),
            node,
            self.ledger,
            _RecordedBounds(self.bounds.append),
            5.0,
            limits=lambda: limits,
            orders=self.orders,
            are_assignments_known=lambda: True,
        )

    def advance(self, seconds: float, *assignments: Assignment) -> None:
        """Advance time while these pods have the GPU."""
        for _ in range(round(seconds * SAMPLES_PER_SECOND)):
            now = self._ticks / SAMPLES_PER_SECOND
            self.ledger.add_samples([self.gpu.sample(now)], now + 0.003)
            self.ledger.observe(AssignmentObservation(now, now + 0.003, assignments))
            self._ticks += 1

    def push(self) -> str:
        """Push to the operator; returns the problem, or nothing. One that took too long is repeated, as agents do."""
        for _ in range(PUSHES):
            self.pusher.push()
            if not self.pusher.state.problem.endswith("timed out"):
                break
        return self.pusher.state.problem


class _TrustedApi(NodeReportApi):
    """The operator's API, trusted without TLS."""

    @property
    def verified(self) -> bool:
        return True


@dataclass
class ObeyedOrders:
    """Carries out the operator's orders at once, without GPUs; the pusher's `OrderedLimits`.

    Attributes:
        held: By uid of the pod, the limit that is held, and since when.
    """

    clock: Callable[[], float]
    held: dict[str, tuple[float | None, float]] = field(default_factory=dict)
    revision: int = 0

    def states(self, pod_uids: Collection[str]) -> tuple[PodLimitState, ...]:
        known = {uid: self.held[uid] for uid in pod_uids if uid in self.held}
        return tuple(
            PodLimitState(uid, ALLOWED_WATTS, watts or 0.0, 0.0 if watts is None else self.clock() - since)
            for uid, (watts, since) in known.items()
        )

    def apply(self, orders: Iterable[PodLimit]) -> None:
        for order in orders:
            if self.held.get(order.pod_uid, (0.0, 0.0))[0] != order.watts:
                self.held[order.pod_uid] = order.watts, self.clock()

    def forget_all_but(self, pod_uids: Collection[str]) -> None:
        self.held = {uid: held for uid, held in self.held.items() if uid in pod_uids}


class _RecordedBounds:
    def __init__(self, record: Callable[[tuple[GpuBounds, ...]], None]) -> None:
        self._record = record

    def replace(self, bounds: Sequence[GpuBounds]) -> None:
        self._record(tuple(bounds))
