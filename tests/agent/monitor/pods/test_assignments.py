"""The assignment of GPUs to containers: the kubelet's list joined with pod uids."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from wattloop_agent.monitor.energy.attribution import Assignment
from wattloop_agent.monitor.pods.assignments import (
    SEARCH_SECONDS,
    START_SECONDS,
    PodLiveness,
    all_assigned,
    assignments_of,
    uids_by_name,
    unlisted,
)
from wattloop_agent.monitor.pods.kubelet import PodName

GPUS = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(3)]
TRAINER = PodName("default", "trainer")


def running(*uids: str) -> Callable[[set[str]], set[str]]:
    return lambda requested: requested & set(uids)


def none_running(requested: set[str]) -> set[str]:
    raise AssertionError(f"the processes of {requested} need not be looked for")


def assigned(uid: str, gpu: str = GPUS[0], container: str = "main") -> Assignment:
    return Assignment(uid, "default", "trainer", container, gpu)


def test_each_container_has_its_gpus_and_parts_of_gpus_are_shared() -> None:
    mig = "MIG-00000000-0000-0000-0000-00000000000a"
    devices = {
        TRAINER: {"main": frozenset({GPUS[0], f"{GPUS[1]}::2"}), "side": frozenset({mig}), "none": frozenset[str]()},
        PodName("default", "unnamed"): {"main": frozenset({GPUS[2]})},
    }
    found = assignments_of(devices, {TRAINER: ["u"]}, {mig: GPUS[2]})
    assert [(each.container, each.gpu, each.shared) for each in found] == [
        ("main", GPUS[0], False),
        ("main", GPUS[1], True),
        ("side", GPUS[2], True),
    ]
    assert {(each.pod_uid, each.namespace, each.pod) for each in found} == {("u", "default", "trainer")}
    assert not all_assigned(devices, {TRAINER: ["u"]}, {mig: GPUS[2]}), "a pod without a uid has a GPU"
    del devices[PodName("default", "unnamed")]
    assert all_assigned(devices, {TRAINER: ["u"]}, {mig: GPUS[2]})
    assert not all_assigned(devices, {TRAINER: ["u"]}, {}), "a part of an unknown GPU"


def test_names_with_one_uid_need_no_scan_of_processes() -> None:
    assert uids_by_name({"u": TRAINER, "v": PodName("a", "b")}, none_running, set()) == {
        TRAINER: ["u"],
        PodName("a", "b"): ["v"],
    }


@pytest.mark.parametrize(
    ("run", "known", "uids"),
    [
        (["new"], ["old"], ["new"]),
        (["old"], ["old"], ["old"]),
        (["old", "new"], ["old"], ["old", "new"]),
        ([], ["old"], ["new"]),
        ([], [], ["old", "new"]),
    ],
    ids=["the old one has ended", "the new one is not there", "both run", "the new one starts", "nothing tells"],
)
def test_of_two_pods_with_one_name_the_running_one_has_the_gpu(
    run: list[str], known: list[str], uids: list[str]
) -> None:
    assert uids_by_name({"old": TRAINER, "new": TRAINER}, running(*run), set(known)) == {TRAINER: uids}


def test_a_pod_that_is_no_longer_listed_keeps_its_gpu_while_it_runs() -> None:
    assert unlisted([assigned("u"), assigned("v", GPUS[1])], [], running("u")) == [assigned("u")]


def test_a_gpu_listed_with_another_pod_belongs_to_that_pod() -> None:
    assert unlisted([assigned("u")], [assigned("v")], none_running) == []


def test_a_listed_pod_is_not_searched_for() -> None:
    assert unlisted([assigned("u")], [assigned("u")], none_running) == []


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
    assert node.liveness.have_ended({"u"}, lambda _: False)
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
    assert not node.liveness.have_ended({"u"}, lambda _: False), "its volumes may still be mounted"
    node.processes.pods[2] = "u"
    assert node.among("u", "v", after=SEARCH_SECONDS) == {"u", "v"}


def test_of_the_pods_that_have_completed_before_the_agent_started_those_that_had_a_container_have_ended() -> None:
    node = Node(Processes({1: "v"}))
    node.among("u", "v", "w", "x")
    assert node.among("u", "v", "w", "x", after=START_SECONDS) == {"v"}
    node.processes.pods[2] = "x"
    assert not node.liveness.have_ended({"u", "x"}, lambda uid: uid != "w"), "one may have started since the search"
    assert node.among("u", "v", "w", "x", after=1.0) == {"v", "x"}
    assert node.liveness.have_ended({"u"}, lambda _: False), "its log may be deleted meanwhile"
    assert not node.liveness.have_ended({"u", "w"}, lambda _: False)


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
