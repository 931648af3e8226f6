"""Tracks whether listed pods still run, because older kubelets also list completed pods."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

# A listed pod may have no process for so long: its volumes are mounted before its sandbox runs.
START_SECONDS = 60.0
# The shortest time between two scans of all processes of the node, which take milliseconds.
SEARCH_SECONDS = 10.0


class Processes(Protocol):
    """The interface to the node's processes."""

    def process_by_pod(self, pod_uids: set[str]) -> dict[str, int]:
        """By uid, one process of each of these pods that has any; scans every process of the node.

        Raises:
            OSError: Processes can't be read.
        """

    def is_in(self, pid: int, pod_uid: str) -> bool:
        """Whether this process runs, in this pod.

        Raises:
            OSError: It is unknown.
        """


class PodLiveness:
    """Remembers one process of each pod, so that checking a pod needs no scan of all processes.

    Args:
        processes: The node's processes.
        clock: Monotonic seconds.
    """

    def __init__(self, processes: Processes, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes = processes
        self._clock = clock
        self._pids: dict[str, int] = {}
        self._first_listed_seconds: dict[str, float] = {}
        self._started: set[str] = set()
        self._searched_seconds: dict[str, float] = {}
        self._any_found = False

    def among(self, pod_uids: set[str]) -> set[str]:
        """The pods among these that run or may still start; all other pods are forgotten.

        Raises:
            OSError: It is unknown for some of them.
        """
        now = self._clock()
        for by_uid in (self._pids, self._first_listed_seconds, self._searched_seconds):
            for uid in [uid for uid in by_uid if uid not in pod_uids]:
                del by_uid[uid]
        self._started &= pod_uids
        for uid in pod_uids:
            self._first_listed_seconds.setdefault(uid, now)
        self._search({uid for uid in pod_uids if not self._runs(uid)}, now)
        return {uid for uid in pod_uids if uid in self._pids or self._may_start(uid, now)}

    def _runs(self, uid: str) -> bool:
        pid = self._pids.get(uid)
        try:
            if pid is not None and self._processes.is_in(pid, uid):
                return True
        except OSError:
            # A failed read says nothing about the process.
            return True
        if self._pids.pop(uid, None) is not None:
            # The pod has just ended, or another of its processes runs: search at once.
            self._searched_seconds.pop(uid, None)
        return False

    def _search(self, missing: set[str], now: float) -> None:
        due = {uid for uid in missing if now - self._searched_seconds.get(uid, -SEARCH_SECONDS) >= SEARCH_SECONDS}
        if not due:
            return
        found = self._processes.process_by_pod(missing)
        self._searched_seconds |= dict.fromkeys(missing, now)
        self._pids |= found
        self._started |= found.keys()
        self._any_found = self._any_found or bool(found)

    def _may_start(self, uid: str, now: float) -> bool:
        if uid in self._started:
            return False
        # If no process of any pod was ever found, processes can't be seen from here, and their
        # absence says nothing.
        return not self._any_found or now - self._first_listed_seconds[uid] < START_SECONDS
