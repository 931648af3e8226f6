"""The assignment of GPUs to containers: the kubelet's list joined with pod uids."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wattloop_agent.monitor.energy.attribution import Assignment
from wattloop_agent.monitor.pods.assignments import assignments_of, uids_by_name, unlisted
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
