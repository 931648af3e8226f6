"""The processes of pods, found by scanning ``/proc`` for cgroups that the kubelet named.

The kubelet names a pod's cgroup after its uid, under cgroup v1 and v2, with the cgroupfs and the systemd driver, and
the container runtimes name a container's below it: ``/kubepods/burstable/pod<uid>/<container>``,
``/kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<container>.scope``, ``crio-…``, ``docker-…``.
"""

import errno
import itertools
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from wattloop.gpus.gpu_processes import MPS_SERVER, ListedProcess, listed_process
from wattloop_agent.monitor.identity import no_step
from wattloop_agent.monitor.watched_process import start_ticks

# An API server's uid, or the hash that names a static pod; systemd can't have dashes inside, so they are underscores.
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"(?:.*-)?pod({_UID})(?:\.slice)?")
_CONTAINER = re.compile(r"(?:[a-z]+(?:-[a-z]+)*-)?([0-9a-f]{64})(?:\.scope)?")


class NotInPodError(ValueError):
    """The process is in no pod, or in two at once."""


def pod_of(cgroup: str) -> str:
    """The uid of the pod that the content of ``/proc/<pid>/cgroup`` names, as the API server writes it.

    Only the outermost pod counts: a container may make cgroups below its own, with any name.

    Raises:
        NotInPodError: There is none, or the hierarchies of cgroup v1 do not agree.

    Example:
        >>> uid = "0a1b2c3d-0000-4000-8000-000000000001"
        >>> pod_of(f"0::/kubepods/besteffort/pod{uid}/{'c' * 64}")
        '0a1b2c3d-0000-4000-8000-000000000001'
    """
    found = {pod for line in cgroup.splitlines() if (pod := _of_path(line.split(":", 2)[-1])) is not None}
    if not found:
        raise NotInPodError("its cgroup is no pod's")
    if len(found) > 1:
        raise NotInPodError("its cgroups are of different pods")
    return found.pop()[0]


def _of_path(path: str) -> tuple[str, str] | None:
    """The uid of the pod, and the id of the container."""
    parts = path.split("/")
    # systemd lets a user of the node make cgroups below its own slice, with any name.
    if "user.slice" in parts:
        return None
    for part, below in itertools.pairwise(parts):
        if pod := _POD.fullmatch(part):
            container = _CONTAINER.fullmatch(below)
            return container and (pod.group(1).replace("_", "-"), container.group(1))
    return None


class PodProcesses:
    """The processes of this node's pods, by ``/proc`` of the node's PID namespace."""

    def __init__(self, processes: Path = Path("/proc")) -> None:
        self._processes = processes

    def pod_uid_of(self, pid: int) -> str | None:
        """The pod that a process is in; None: in none, or there is no such process.

        Raises:
            OSError: It is unknown, for example because no descriptor or memory is left.
        """
        try:
            cgroup = (self._processes / str(pid) / "cgroup").read_bytes()
            return pod_of(os.fsdecode(cgroup))
        except (FileNotFoundError, ProcessLookupError, NotInPodError):
            return None
        except OSError as error:
            # A process may nest cgroups of its own deeper than the kernel shows; no container's cgroup is that deep.
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise

    def outside_of(self, pod_uids: Collection[str], pids: Iterable[int]) -> list[ListedProcess]:
        """Those of these processes that run in none of these pods, without the server that acts for its clients.

        Raises:
            OSError: It is unknown.
        """
        running = (each for pid in pids if (each := listed_process(pid, self._processes)) is not None)
        # The chart's agent mounts a /proc that hides nothing, so a process without a name is ending.
        named = (each for each in running if each.name and each.name != MPS_SERVER)
        others = [each for each in named if self.pod_uid_of(each.pid) not in pod_uids]
        # One that has ended meanwhile was in no pod any more.
        return [each for each in others if listed_process(each.pid, self._processes) is not None]

    def find(self, pod_uids: set[str], step: Callable[[], None] = no_step) -> Iterator[int]:
        """The processes of these pods; calls `step` before each process of the node.

        Raises:
            OSError: A process could not be read; raised after all others were.
        """
        failed: OSError | None = None
        for folder in self._processes.iterdir():
            step()
            pid = int(folder.name) if folder.name.isdecimal() else 0
            try:
                if pid and self.pod_uid_of(pid) in pod_uids and start_ticks(pid, self._processes) is not None:
                    yield pid
            except PermissionError:
                # A security module hides the process for as long as it runs, so it never was a caller.
                continue
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def process_by_pod(self, pod_uids: set[str]) -> dict[str, int]:
        """By uid, one process of each of these pods that has any; scans every process of the node.

        Raises:
            OSError: Processes can't be read.
        """
        return {uid: pid for pid in self.find(pod_uids) if (uid := self.pod_uid_of(pid)) is not None}

    def first_processes(self, pod_uids: set[str]) -> dict[str, float]:
        """By uid, the start time of each pod's oldest running process, on the monotonic clock.

        Raises:
            OSError: Processes can't be read.
        """
        first: dict[str, float] = {}
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        for pid in self.find(pod_uids):
            uid, ticks = self.pod_uid_of(pid), start_ticks(pid, self._processes)
            if uid is not None and ticks is not None:
                first[uid] = min(first.get(uid, math.inf), ticks / os.sysconf("SC_CLK_TCK") - since_boot)
        return first

    def is_in(self, pid: int, pod_uid: str) -> bool:
        """Whether this process runs, in this pod; `OSError`: it is unknown."""
        return self.pod_uid_of(pid) == pod_uid and start_ticks(pid, self._processes) is not None
