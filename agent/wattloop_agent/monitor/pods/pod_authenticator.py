"""Owners that are pods of this node."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wattloop_agent.monitor.identity import Caller, UncertainOwners, identification_failed, no_step
from wattloop_agent.monitor.pods.cgroup import NotInPodError, pod_of
from wattloop_agent.monitor.pods.device_ids import gpus_of, needs_names
from wattloop_agent.monitor.pods.grpc_call import GrpcCallError
from wattloop_agent.monitor.pods.kubelet import PodName, devices_by_pod, names_by_uid
from wattloop_agent.monitor.watched_process import WatchedProcess, start_ticks
from wattloop_agent.request_error import Reason, RequestError

# A GPU that the kubelet gives to another pod can be set by the pod before for so long at most, if
# that still runs.
ANSWER_AGE_SECONDS = 1.0
# Whoever is not listed is looked for again, so often at most.
NEW_POD_SECONDS = 0.05
KUBELET_TIMEOUT_SECONDS = 3.0
_KIND = "pod:"


@dataclass(frozen=True)
class Node:
    """Where this node's truths are.

    Attributes:
        kubelet: The kubelet's pod-resources socket.
        pod_logs: The kubelet's folder of pod logs, which names pods with their uids.
        processes: ``/proc`` of the node's PID namespace.
    """

    kubelet: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    pod_logs: Path = Path("/var/log/pods")
    processes: Path = Path("/proc")


@dataclass(frozen=True)
class KubeletView:
    """What the kubelet said last.

    Attributes:
        devices: By pod and container, the ids of the devices that it was given.
        names: By uid, the pods that have logs here.
        asked_seconds: When it was asked, on the monotonic clock.
    """

    devices: Mapping[PodName, Mapping[str, frozenset[str]]]
    names: Mapping[str, PodName]
    asked_seconds: float


class PodPeer:
    """A process of a pod at the other end of a connection.

    Args:
        authenticator: Who gave it out.
        process: The process; the peer closes it.
        pod_uid: Where it was when it connected.
    """

    def __init__(self, authenticator: PodAuthenticator, process: WatchedProcess, pod_uid: str) -> None:
        self._authenticator = authenticator
        self._process = process
        self._pod_uid = pod_uid

    @property
    def owner(self) -> str:
        """The pod's name as an owner."""
        return f"{_KIND}{self._pod_uid}"

    async def caller(self) -> Caller:
        """Its pod, with the GPUs that the kubelet says it has.

        Raises:
            RequestError: The process has ended or has moved, the kubelet does not know its pod, or
                the system does not tell.
        """
        caller = await self._authenticator.caller(self._pod_uid)
        try:
            now = self._authenticator.pod_uid_of(self._process.pid)
            # The cgroup was read by pid: if the process still is there, it was its own.
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
        """Watch the process no more."""
        self._process.close()


class PodAuthenticator:
    """Identifies authenticator and owners as pods of this node.

    Args:
        uuid_by_device: Gives, under the name of its device node and the uuids of its MIG devices,
            each GPU's uuid.
        node: Where this node's truths are.
    """

    def __init__(
        self,
        uuid_by_device: Callable[[], Awaitable[Mapping[str, str]]],
        node: Node | None = None,
    ) -> None:
        self._uuid_by_device = uuid_by_device
        self._node = node or Node()
        self._told: KubeletView | None = None
        self._failed: tuple[float, RequestError] = (
            -math.inf,
            RequestError(Reason.UNAVAILABLE, "the kubelet was not asked"),
        )
        self._asking = asyncio.Lock()
        self._uncertain = UncertainOwners()

    def peer(self, connection: socket.socket) -> PodPeer:
        """The pod's process that opened this connection.

        Raises:
            RequestError: It has ended, or is in no pod, or the system does not tell.
        """
        try:
            process = WatchedProcess.of_peer(connection)
        except ProcessLookupError as error:
            raise RequestError(Reason.NOT_PERMITTED, f"who opened this connection is gone: {error.strerror}") from error
        except OSError as error:
            raise identification_failed(error) from error
        try:
            uid = self.pod_uid_of(process.pid)
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

    async def caller(self, pod_uid: str) -> Caller:
        """The caller that a pod is.

        Raises:
            RequestError: The kubelet does not answer or knows no such pod, two pods of its name
                still run, or the system does not tell whether they do.
        """
        told = await self.ask_kubelet()
        if told.names.get(pod_uid) not in told.devices:
            # The pod may have come since. The wait bounds how often unknown pods have the kubelet
            # asked.
            await asyncio.sleep(max(told.asked_seconds + NEW_POD_SECONDS - time.monotonic(), 0.0))
            told = await self.ask_kubelet(NEW_POD_SECONDS / 2)
        pod = told.names.get(pod_uid)
        if pod is None or pod not in told.devices:
            raise RequestError(Reason.NOT_PERMITTED, f"pod {pod_uid}: the kubelet lists no such pod; it has ended")
        namesakes = {uid for uid, name in told.names.items() if name == pod} - {pod_uid}
        if namesakes and self._any_runs(namesakes):
            raise RequestError(
                Reason.NOT_PERMITTED,
                f"pod {pod.namespace}/{pod.name}: another of this name still runs here, and the kubelet says not whose "
                "the GPUs are; ask again when one has ended",
            )
        ids = frozenset[str]().union(*told.devices[pod].values())
        gpus = gpus_of(ids, await self.device_names(ids))
        return Caller(f"{_KIND}{pod_uid}", gpus.exclusive, gpus.shared, pod.namespace)

    def alive(self, owner: str, step: Callable[[], None] = no_step) -> bool:
        """Whether any process of the pod is there. In doubt: yes."""
        if not owner.startswith(_KIND):
            return True
        try:
            there = next(self._processes_of({owner.removeprefix(_KIND)}, step), None) is not None
        except OSError as error:
            self._uncertain.add(owner, error)
            return True
        self._uncertain.clear(owner)
        return there

    def process_of(self, owner: str, step: Callable[[], None] = no_step) -> WatchedProcess | None:
        """A process of the pod, for the caller to close: whether another is there is for `alive` to say.

        None also where processes cannot be looked at now, so call again.
        """
        if owner.startswith(_KIND):
            with contextlib.suppress(OSError):
                for pid in self._processes_of({owner.removeprefix(_KIND)}, step):
                    with contextlib.suppress(ProcessLookupError):
                        return WatchedProcess.opened(pid)
        return None

    def pod_uid_of(self, pid: int) -> str | None:
        """The pod that a process is in now; None: in none, or there is no such process.

        Raises:
            OSError: It is not known, as where no descriptor or memory is left.
        """
        try:
            cgroup = (self._node.processes / str(pid) / "cgroup").read_bytes()
            return pod_of(os.fsdecode(cgroup)).pod_uid
        except (FileNotFoundError, ProcessLookupError, NotInPodError):
            return None
        except OSError as error:
            # A process may nest cgroups of its own deeper than the kernel shows. No container
            # begins there.
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise

    def _any_runs(self, pod_uids: set[str]) -> bool:
        try:
            return any(self._processes_of(pod_uids))
        except OSError as error:
            raise identification_failed(error) from error

    def _processes_of(self, pod_uids: set[str], step: Callable[[], None] = no_step) -> Iterator[int]:
        """The processes of these pods that there are; raises `OSError` at the end where one could not be looked at."""
        failed: OSError | None = None
        for folder in self._node.processes.iterdir():
            step()
            pid = int(folder.name) if folder.name.isdecimal() else 0
            try:
                if pid and self.pod_uid_of(pid) in pod_uids and start_ticks(pid, self._node.processes) is not None:
                    yield pid
            except PermissionError:
                # A security module hides it, for as long as it runs: it is no process that was ever
                # served.
                continue
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def process_by_pod(self, pod_uids: set[str]) -> dict[str, int]:
        """By uid, a process of each of these pods that has one here; looks at every process of the node.

        Raises:
            OSError: Processes can't be looked at.
        """
        return {uid: pid for pid in self._processes_of(pod_uids) if (uid := self.pod_uid_of(pid)) is not None}

    def first_processes(self, pod_uids: set[str]) -> dict[str, float]:
        """By uid, when the first process of each of these pods began that is there, on the monotonic clock.

        Raises:
            OSError: Processes can't be looked at.
        """
        first: dict[str, float] = {}
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        for pid in self._processes_of(pod_uids):
            uid, ticks = self.pod_uid_of(pid), start_ticks(pid, self._node.processes)
            if uid is not None and ticks is not None:
                first[uid] = min(first.get(uid, math.inf), ticks / os.sysconf("SC_CLK_TCK") - since_boot)
        return first

    def is_in(self, pid: int, pod_uid: str) -> bool:
        """Whether this process is there, and in this pod.

        Raises:
            OSError: It is not known.
        """
        return self.pod_uid_of(pid) == pod_uid and start_ticks(pid, self._node.processes) is not None

    async def ask_kubelet(self, age_seconds: float | None = None) -> KubeletView:
        """What the kubelet says.

        Args:
            age_seconds: How old that may be; default: `ANSWER_AGE_SECONDS`.

        Raises:
            RequestError: It does not say.
        """
        age = ANSWER_AGE_SECONDS if age_seconds is None else min(age_seconds, ANSWER_AGE_SECONDS)
        came_seconds = time.monotonic()
        async with self._asking:
            failed_seconds, refusal = self._failed
            if failed_seconds >= came_seconds:
                # A kubelet that hangs makes everyone wait once, not one after another.
                raise refusal
            if self._told is None or time.monotonic() - self._told.asked_seconds > age:
                asked = time.monotonic()
                try:
                    devices, names = await asyncio.to_thread(self._read_kubelet)
                except (GrpcCallError, OSError, ValueError) as error:
                    told = f"the kubelet does not say which GPUs are whose: {error}; try again"
                    self._failed = time.monotonic(), RequestError(Reason.UNAVAILABLE, told)
                    raise RequestError(Reason.UNAVAILABLE, told) from error
                self._told = KubeletView(devices, names, asked)
            return self._told

    def _read_kubelet(self) -> tuple[Mapping[PodName, Mapping[str, frozenset[str]]], Mapping[str, PodName]]:
        # Names first: a pod that came between the two is known by its name and not by its uid, so
        # it has to ask again.
        names = names_by_uid(self._node.pod_logs)
        return devices_by_pod(self._node.kubelet, KUBELET_TIMEOUT_SECONDS), names

    async def device_names(self, ids: Iterable[str]) -> Mapping[str, str]:
        """What `gpus_of` has to be told for these ids.

        Raises:
            RequestError: The driver does not say.
        """
        return await self._uuid_by_device() if needs_names(ids) else {}
