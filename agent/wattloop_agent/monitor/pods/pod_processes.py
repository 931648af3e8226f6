"""The processes of pods, found by scanning ``/proc`` for cgroups that the kubelet named."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from wattloop_agent.monitor.identity import no_step
from wattloop_agent.monitor.pods.cgroup import NotInPodError, pod_of
from wattloop_agent.monitor.watched_process import start_ticks


class PodProcesses:
    """The processes of this node's pods.

    Args:
        processes: ``/proc`` of the node's PID namespace.
    """

    def __init__(self, processes: Path = Path("/proc")) -> None:
        self._processes = processes

    def pod_uid_of(self, pid: int) -> str | None:
        """The pod that a process is in; None: in none, or there is no such process.

        Raises:
            OSError: It is unknown, for example because no descriptor or memory is left.
        """
        try:
            cgroup = (self._processes / str(pid) / "cgroup").read_bytes()
            return pod_of(os.fsdecode(cgroup)).pod_uid
        except (FileNotFoundError, ProcessLookupError, NotInPodError):
            return None
        except OSError as error:
            # A process may nest cgroups of its own deeper than the kernel shows; no container's
            # cgroup is that deep.
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise

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
                # A security module hides the process for as long as it runs, so it never was a
                # caller.
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
        """Whether this process runs, in this pod.

        Raises:
            OSError: It is unknown.
        """
        return self.pod_uid_of(pid) == pod_uid and start_ticks(pid, self._processes) is not None
