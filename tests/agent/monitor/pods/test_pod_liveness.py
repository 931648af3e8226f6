"""Whether a listed pod runs, in virtual time: pods that completed and are listed still, that start, that come back."""

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
        self._look()
        return {uid: pid for pid, uid in self.pods.items() if uid in pod_uids}

    def is_in(self, pid: int, pod_uid: str) -> bool:
        self._look()
        return self.pods.get(pid) == pod_uid

    def _look(self) -> None:
        if self.hidden:
            raise OSError(errno.EMFILE, "no descriptor left")


@dataclass
class Node:
    """The processes, the time, and what is said of the pods u and v."""

    processes: Processes = field(default_factory=Processes)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.living = PodLiveness(self.processes, lambda: self.now)

    def among(self, *uids: str, after: float = 2.0) -> set[str]:
        self.now += after
        return self.living.among(set(uids))


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


def test_a_pod_whose_first_process_ends_while_another_runs_goes_on() -> None:
    node = Node(Processes({1: "u"}))
    node.among("u")
    node.processes.pods = {7: "u"}
    assert node.among("u") == {"u"}


def test_a_process_id_that_another_pod_has_by_now_does_not_speak_for_the_first() -> None:
    node = Node(Processes({1: "u"}))
    node.among("u")
    node.processes.pods = {1: "v"}
    assert node.among("u", "v") == {"v"}


def test_a_pod_that_starts_is_believed_for_a_while_and_known_once_it_runs() -> None:
    node = Node(Processes({1: "v"}))
    assert node.among("u", "v") == {"u", "v"}
    assert node.among("u", "v", after=START_SECONDS) == {"v"}
    node.processes.pods[2] = "u"
    assert node.among("u", "v", after=SEARCH_SECONDS) == {"u", "v"}


def test_where_no_pods_process_can_be_seen_the_list_alone_counts() -> None:
    node = Node()
    assert node.among("u") == {"u"}
    assert node.among("u", after=10 * START_SECONDS) == {"u"}


def test_a_pod_whose_sandbox_is_made_anew_comes_back() -> None:
    node = Node(Processes({1: "u"}))
    node.among("u")
    node.processes.pods = {}
    assert node.among("u") == set()
    node.processes.pods = {9: "u"}
    assert node.among("u", after=SEARCH_SECONDS) == {"u"}


def test_while_processes_cannot_be_looked_at_a_pod_that_ran_goes_on_and_of_a_new_one_nothing_is_known() -> None:
    node = Node(Processes({1: "u"}))
    node.among("u")
    node.processes.pods = {}
    node.processes.hidden = True
    assert node.among("u", after=SEARCH_SECONDS) == {"u"}
    with pytest.raises(OSError, match="no descriptor left"):
        node.among("u", "v")
    node.processes.hidden = False
    assert node.among("u", "v", after=SEARCH_SECONDS) == {"v"}
