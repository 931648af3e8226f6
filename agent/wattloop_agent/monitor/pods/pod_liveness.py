"""Whether a pod that the kubelet lists still runs: older ones list completed pods with their devices, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

# How long a pod that is listed may have no process yet: its volumes are mounted before its sandbox
# runs.
START_SECONDS = 60.0
# A look at all processes of the node takes milliseconds.
SEARCH_SECONDS = 10.0


class Processes(Protocol):
    """The seam to the node's processes."""

    def process_by_pod(self, pod_uids: set[str]) -> dict[str, int]:
        """By uid, a process of each of these pods that has one; looks at every process of the node.

        Raises:
            OSError: Processes can't be looked at.
        """

    def is_in(self, pid: int, pod_uid: str) -> bool:
        """Whether this process is there, and in this pod.

        Raises:
            OSError: It is not known.
        """


class PodLiveness:
    """Remembers a process of each pod, so that whether the pod runs takes no look at all processes.

    Args:
        processes: The node's.
        clock: Monotonic seconds.
    """

    def __init__(self, processes: Processes, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes = processes
        self._clock = clock
        self._pids: dict[str, int] = {}
        self._first_seconds: dict[str, float] = {}
        self._lived: set[str] = set()
        self._searched_seconds: dict[str, float] = {}
        self._any_found = False

    def among(self, pod_uids: set[str]) -> set[str]:
        """Which of these pods run, or may be about to; the others are forgotten.

        Raises:
            OSError: It is not known of all.
        """
        now = self._clock()
        for memory in (self._pids, self._first_seconds, self._searched_seconds):
            for uid in [uid for uid in memory if uid not in pod_uids]:
                del memory[uid]
        self._lived &= pod_uids
        for uid in pod_uids:
            self._first_seconds.setdefault(uid, now)
        self._search({uid for uid in pod_uids if not self._runs(uid)}, now)
        return {uid for uid in pod_uids if uid in self._pids or self._may_start(uid, now)}

    def _runs(self, uid: str) -> bool:
        pid = self._pids.get(uid)
        try:
            if pid is not None and self._processes.is_in(pid, uid):
                return True
        except OSError:
            # The look failed, which tells nothing of the process.
            return True
        if self._pids.pop(uid, None) is not None:
            # It has just ended, or another process of the pod goes on.
            self._searched_seconds.pop(uid, None)
        return False

    def _search(self, missing: set[str], now: float) -> None:
        due = {uid for uid in missing if now - self._searched_seconds.get(uid, -SEARCH_SECONDS) >= SEARCH_SECONDS}
        if not due:
            return
        found = self._processes.process_by_pod(missing)
        self._searched_seconds |= dict.fromkeys(missing, now)
        self._pids |= found
        self._lived |= found.keys()
        self._any_found = self._any_found or bool(found)

    def _may_start(self, uid: str, now: float) -> bool:
        if uid in self._lived:
            return False
        # Where no process of any pod was ever seen, they can't be seen from here, and say nothing.
        return not self._any_found or now - self._first_seconds[uid] < START_SECONDS
