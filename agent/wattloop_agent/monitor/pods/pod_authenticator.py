"""Identifies callers and lease owners as pods of this node."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattloop.gpus.gpu_processes import PARTIAL_LIST
from wattloop_agent.monitor.identity import (
    SocketCaller,
    UncertainOwners,
    identification_failed,
    no_step,
    process_of_peer,
)
from wattloop_agent.monitor.pods.kubelet import (
    GrpcCallError,
    PodDevices,
    PodName,
    devices_by_pod,
    gpus_of,
    has_container_log,
    names_by_uid,
    needs_names,
)
from wattloop_agent.monitor.pods.pod_processes import PodProcesses
from wattloop_agent.monitor.watched_process import WatchedProcess
from wattloop_agent.refusals import Reason, RequestError

# After the kubelet has given a GPU to another pod, the previous pod can set it for so long at most, if it still runs.
ANSWER_AGE_SECONDS = 1.0
# The shortest time between two requests to the kubelet for pods that it does not list.
NEW_POD_SECONDS = 0.05
KUBELET_TIMEOUT_SECONDS = 3.0
_PREFIX = "pod:"


@dataclass(frozen=True)
class Node:
    """The places on this node that identify pods.

    Attributes:
        kubelet: The kubelet's pod-resources socket.
        pod_logs: The kubelet's folder of pod logs, which names pods with their uids.
        processes: ``/proc`` of the node's PID namespace.
    """

    kubelet: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    pod_logs: Path = Path("/var/log/pods")
    processes: Path = Path("/proc")


@dataclass(frozen=True)
class KubeletAnswer:
    """The kubelet's last answer.

    Attributes:
        devices: By pod and container, the ids of the assigned devices.
        has_other_devices: See `PodDevices.has_others`.
        names: By uid, the pods that have logs on this node.
        requested_seconds: Time of the request, on the monotonic clock.
    """

    devices: Mapping[PodName, Mapping[str, frozenset[str]]]
    has_other_devices: bool
    names: Mapping[str, PodName]
    requested_seconds: float


class PodPeer:
    """A process of a pod at the other end of a connection; see `Peer`."""

    def __init__(self, authenticator: PodAuthenticator, process: WatchedProcess, pod_uid: str) -> None:
        self._authenticator = authenticator
        self._process = process
        self._pod_uid = pod_uid
        self.owner = f"{_PREFIX}{pod_uid}"

    async def caller(self) -> SocketCaller:
        """Its pod, with the GPUs that the kubelet reports for it; the process must not have left the pod."""
        caller = await self._authenticator.caller(self._pod_uid)
        try:
            now = self._authenticator.processes.pod_uid_of(self._process.pid)
            # The cgroup was read by pid: it was this process's if the process still runs.
            ended = self._process.has_ended()
        except OSError as error:
            raise identification_failed(error) from error
        if ended:
            raise RequestError(Reason.NOT_PERMITTED, "the process that opened this connection has ended; open your own")
        if now != self._pod_uid:
            pid, uid = self._process.pid, self._pod_uid
            raise RequestError(Reason.NOT_PERMITTED, f"process {pid} connected from pod {uid} and has left it")
        return caller

    def close(self) -> None:
        """Stop watching the process."""
        self._process.close()


class PodAuthenticator:
    """Identifies callers and lease owners as pods of this node; see `Authenticator`.

    Args:
        uuid_by_device: Gives each GPU's uuid, by the name of its device node and by the uuids of its MIG devices.
        node: The places on this node that identify pods.
        partitioned: Gives the uuids of the GPUs on which MIG is enabled. Until the device plugin
            notices that, the kubelet lists the whole GPU beside its parts.

    Attributes:
        processes: The processes of this node's pods.
    """

    def __init__(
        self,
        uuid_by_device: Callable[[], Awaitable[Mapping[str, str]]],
        node: Node | None = None,
        partitioned: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._uuid_by_device = uuid_by_device
        self._node = node or Node()
        self._partitioned = partitioned
        self._answer: KubeletAnswer | None = None
        self._failed: tuple[float, RequestError] = (
            -math.inf,
            RequestError(Reason.UNAVAILABLE, "the kubelet was not asked yet"),
        )
        self._requesting = asyncio.Lock()
        self._uncertain = UncertainOwners()
        self.processes = PodProcesses(self._node.processes)

    def peer(self, connection: socket.socket) -> PodPeer:
        """The pod's process that opened this connection."""
        process = process_of_peer(connection)
        try:
            uid = self.processes.pod_uid_of(process.pid)
            ended = process.has_ended()
        except OSError as error:
            process.close()
            raise identification_failed(error) from error
        if uid is None or ended:
            process.close()
            raise RequestError(
                Reason.NOT_PERMITTED, f"process {process.pid} is in no pod of this node; only pods are served"
            )
        return PodPeer(self, process, uid)

    def others(self, owner: str, pids: Sequence[int], *, is_complete: bool) -> tuple[tuple[str, ...], str]:
        """A caller's own processes are those of its pod."""
        if not is_complete:
            return (), PARTIAL_LIST
        try:
            found = self.processes.outside_of({owner.removeprefix(_PREFIX)}, pids)
        except OSError as error:
            return (), f"the pods of the processes on it can't be read: {error}"
        return tuple(map(str, found)), ""

    async def caller(self, pod_uid: str) -> SocketCaller:
        """The identity of a pod.

        Raises:
            RequestError: The kubelet does not answer or knows no such pod, two pods of its name
                still run, or the system does not report whether they do.
        """
        answer = await self.ask_kubelet()
        if answer.names.get(pod_uid) not in answer.devices:
            # The pod may be newer than the answer. The wait bounds how often unknown pods cause
            # requests to the kubelet.
            await asyncio.sleep(max(answer.requested_seconds + NEW_POD_SECONDS - time.monotonic(), 0.0))
            answer = await self.ask_kubelet(NEW_POD_SECONDS / 2)
        pod = answer.names.get(pod_uid)
        if pod is None or pod not in answer.devices:
            raise RequestError(Reason.NOT_PERMITTED, f"pod {pod_uid}: the kubelet lists no such pod; it has ended")
        namesakes = {uid for uid, name in answer.names.items() if name == pod} - {pod_uid}
        if namesakes and self._any_runs(namesakes):
            raise RequestError(
                Reason.NOT_PERMITTED,
                f"pod {pod.namespace}/{pod.name}: another pod of this name still runs here, and the kubelet does not "
                "report which of them has the GPUs; try again when one has ended",
            )
        ids = frozenset[str]().union(*answer.devices[pod].values())
        gpus = gpus_of(ids, await self.device_names(ids))
        parts = gpus.exclusive & self._partitioned()
        return SocketCaller(f"{_PREFIX}{pod_uid}", gpus.exclusive - parts, gpus.shared | parts, pod.namespace)

    def alive(self, owner: str, step: Callable[[], None] = no_step) -> bool:
        """Whether any process of the pod runs; True where it is unknown."""
        if not owner.startswith(_PREFIX):
            return True
        try:
            runs = next(self.processes.find({owner.removeprefix(_PREFIX)}, step), None) is not None
        except OSError as error:
            self._uncertain.add(owner, error)
            return True
        self._uncertain.clear(owner)
        return runs

    def process_of(self, owner: str, step: Callable[[], None] = no_step) -> WatchedProcess | None:
        """One process of the pod, which the caller closes; `alive` tells whether another one runs.

        None also where processes can't be read now, so call again.
        """
        if owner.startswith(_PREFIX):
            with contextlib.suppress(OSError):
                for pid in self.processes.find({owner.removeprefix(_PREFIX)}, step):
                    with contextlib.suppress(ProcessLookupError):
                        return WatchedProcess.opened(pid)
        return None

    def has_started(self, pod_uid: str, pod: PodName) -> bool:
        """Whether a container of the pod has started since this node did; `OSError`: it is unknown."""
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return has_container_log(self._node.pod_logs, pod_uid, pod, booted)

    def _any_runs(self, pod_uids: set[str]) -> bool:
        try:
            return any(self.processes.find(pod_uids))
        except OSError as error:
            raise identification_failed(error) from error

    async def ask_kubelet(self, age_seconds: float | None = None) -> KubeletAnswer:
        """The kubelet's answer, requested again when it is older than this (default: `ANSWER_AGE_SECONDS`).

        Raises:
            RequestError: The kubelet does not answer.
        """
        age = ANSWER_AGE_SECONDS if age_seconds is None else min(age_seconds, ANSWER_AGE_SECONDS)
        arrived_seconds = time.monotonic()
        async with self._requesting:
            failed_seconds, refusal = self._failed
            if failed_seconds >= arrived_seconds:
                # All callers wait for a kubelet that hangs at the same time, not one after another.
                raise refusal
            if self._answer is None or time.monotonic() - self._answer.requested_seconds > age:
                requested = time.monotonic()
                try:
                    devices, names = await asyncio.to_thread(self._read_kubelet)
                except (GrpcCallError, OSError, ValueError) as error:
                    message = f"the kubelet does not report which pods have which GPUs: {error}; try again"
                    self._failed = time.monotonic(), RequestError(Reason.UNAVAILABLE, message)
                    raise RequestError(Reason.UNAVAILABLE, message) from error
                self._answer = KubeletAnswer(devices.ids, devices.has_others, names, requested)
            return self._answer

    def _read_kubelet(self) -> tuple[PodDevices, Mapping[str, PodName]]:
        # Names first: a pod that starts between the two reads has devices but no uid, so its caller asks again.
        names = names_by_uid(self._node.pod_logs)
        return devices_by_pod(self._node.kubelet, KUBELET_TIMEOUT_SECONDS), names

    async def device_names(self, ids: Iterable[str]) -> Mapping[str, str]:
        """The names that `gpus_of` needs for these ids; `RequestError`: the driver does not report them."""
        return await self._uuid_by_device() if needs_names(ids) else {}
