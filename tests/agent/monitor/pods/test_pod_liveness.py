"""Whether a listed pod runs, in virtual time: completed, starting and recreated pods."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import pytest

from wattloop_agent.monitor.pods.pod_liveness import SEARCH_SECONDS, START_SECONDS, PodLiveness


@dataclass
class Processes:
    """The processes of a node that the test makes up; the real ones are read in test_owners and test_pods."""

    pods: dict[int, str] = field(default_factory=dict)
    searches: int = 0
    hidden: bool = False

    def process_by_pod(self, pod_uids: set[str]) -> dict[str, int]:
        self.searches += 1
        self._scan()
        return {uid: pid for pid, uid in self.pods.items() if uid in pod_uids}

    def is_in(self, pid: int, pod_uid: str) -> bool:
        self._scan()
        return self.pods.get(pid) == pod_uid

    def _scan(self) -> None:
        if self.hidden:
            raise OSError(errno.EMFILE, "no descriptor left")


@dataclass
class Node:
    """The processes, the time, and the liveness of the pods u and v."""

    processes: Processes = field(default_factory=Processes)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.liveness = PodLiveness(self.processes, lambda: self.now)

    def among(self, *uids: str, after: float = 2.0) -> set[str]:
        self.now += after
        return self.liveness.among(set(uids))


def test_a_pod_that_runs_is_searched_for_once() -> None:
    node = Node(Processes({1: "u"}))
    for _ in range(100):
        assert node.among("u") == {"u"}
    assert node.processes.searches == 1


def test_a_pod_that_has_completed_and_is_still_listed_has_ended() -> None:
    node = Node(Processes({1: "u", 2: "v"}))
    assert node.among("u", "v") == {"u", "v"}
    del node.processes.pods[1]
    for _ in range(100):
        assert node.among("u", "v") == {"v"}
    assert node.processes.searches <= 2 + 200 / SEARCH_SECONDS


def test_a_pod_runs_on_when_its_first_process_ends_and_another_runs() -> None:
    node = Node(Processes({1: "u"}))
    node.among("u")
    node.processes.pods = {7: "u"}
    assert node.among("u") == {"u"}


def test_a_pid_reused_by_another_pod_says_nothing_about_the_first() -> None:
    node = Node(Processes({1: "u"}))
    node.among("u")
    node.processes.pods = {1: "v"}
    assert node.among("u", "v") == {"v"}


def test_a_starting_pod_counts_as_running_for_a_limited_time() -> None:
    node = Node(Processes({1: "v"}))
    assert node.among("u", "v") == {"u", "v"}
    assert node.among("u", "v", after=START_SECONDS) == {"v"}
    node.processes.pods[2] = "u"
    assert node.among("u", "v", after=SEARCH_SECONDS) == {"u", "v"}


def test_if_no_pods_process_is_visible_the_list_decides() -> None:
    node = Node()
    assert node.among("u") == {"u"}
    assert node.among("u", after=10 * START_SECONDS) == {"u"}


def test_a_pod_with_a_recreated_sandbox_runs_again() -> None:
    node = Node(Processes({1: "u"}))
    node.among("u")
    node.processes.pods = {}
    assert node.among("u") == set()
    node.processes.pods = {9: "u"}
    assert node.among("u", after=SEARCH_SECONDS) == {"u"}


def test_while_processes_cannot_be_read_a_known_pod_runs_and_a_new_one_is_unknown() -> None:
    node = Node(Processes({1: "u"}))
    node.among("u")
    node.processes.pods = {}
    node.processes.hidden = True
    assert node.among("u", after=SEARCH_SECONDS) == {"u"}
    with pytest.raises(OSError, match="no descriptor left"):
        node.among("u", "v")
    node.processes.hidden = False
    assert node.among("u", "v", after=SEARCH_SECONDS) == {"v"}
