"""Identification of pods with real sockets, processes and gRPC; the tests write their own /proc."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.agents.kubelet_server import KubeletServer, serving
from wattloop.gpus.gpu_processes import PARTIAL_LIST
from wattloop_agent.monitor.energy.attribution import Assignment
from wattloop_agent.monitor.gpu_users import GpuProcessList, ListedGpus
from wattloop_agent.monitor.identity import SocketCaller
from wattloop_agent.monitor.pods import pod_authenticator
from wattloop_agent.monitor.pods.assignments import PodAssignments
from wattloop_agent.monitor.pods.kubelet import PodName
from wattloop_agent.monitor.pods.pod_authenticator import Node, PodAuthenticator, PodPeer
from wattloop_agent.refusals import Reason, RequestError

UID = "0a1b2c3d-4e5f-4071-8293-a4b5c6d7e8f9"
OTHER = "ffffffff-4e5f-4071-8293-a4b5c6d7e8f9"
GPUS = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(3)]
CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"


def cgroup(uid: str) -> str:
    return f"0::/kubepods/burstable/pod{uid}/{'c' * 64}"


@dataclass
class PretendNode:
    """A node's folders, its kubelet, and the processes that were started on it."""

    folder: Path
    kubelet: KubeletServer
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("proc", "logs"):
            (self.folder / name).mkdir()
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(str(self.folder / "agent.sock"))
        self.listening.listen()

    def authenticator(self) -> PodAuthenticator:
        async def uuid_by_device() -> dict[str, str]:
            return {f"nvidia{index}": gpu for index, gpu in enumerate(GPUS)}

        node = Node(self.folder / "kubelet.sock", self.folder / "logs", self.folder / "proc")
        return PodAuthenticator(uuid_by_device, node)

    def pod(self, uid: str, name: str, ids: list[str]) -> None:
        (self.folder / "logs" / f"default_{name}_{uid}").mkdir()
        self.kubelet.pods["default", name] = ids

    def add_process(self, pid: int, uid: str) -> None:
        process = self.folder / "proc" / str(pid)
        process.mkdir(exist_ok=True)
        (process / "cgroup").write_text(cgroup(uid))
        (process / "stat").write_text(f"{pid} (a name) with) S {' '.join('1' * 30)}")

    def connected(self, uid: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", CONNECT, str(self.folder / "agent.sock")], stdin=subprocess.PIPE
        )
        self.processes.append(process)
        self.add_process(process.pid, uid)
        connection, _ = self.listening.accept()
        return process, connection

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.communicate()
        folder = self.folder / "proc" / str(process.pid)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.fixture
def node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendNode]:
    monkeypatch.setattr(pod_authenticator, "ANSWER_AGE_SECONDS", 0.0)
    with serving(folder / "kubelet.sock") as kubelet:
        node = PretendNode(folder, kubelet)
        yield node
        for process in node.processes:
            process.kill()
            process.communicate()
        node.listening.close()


def refusal(peer: PodPeer) -> RequestError:
    with pytest.raises(RequestError) as caught:
        asyncio.run(peer.caller())
    return caught.value


def test_a_pod_started_with_its_oldest_running_process(node: PretendNode) -> None:
    before = time.monotonic()
    ticks = os.sysconf("SC_CLK_TCK")
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    for pid, uid, seconds_ago in ((1001, UID, 5), (1002, UID, 60), (1003, OTHER, 90)):
        node.add_process(pid, uid)
        fields = ["1"] * 30
        fields[18] = str(round((since_boot - seconds_ago) * ticks))
        (node.folder / "proc" / str(pid) / "stat").write_text(f"{pid} (a name) S {' '.join(fields)}")
    found = node.authenticator().processes.first_processes({UID, "nobody"})
    assert found == {UID: pytest.approx(before - 60, abs=0.5)}


def test_a_pods_process_is_identified_as_its_pod_with_its_gpus(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0], f"{GPUS[1]}::2"])
    node.pod(OTHER, "neighbour", [GPUS[2]])
    _, connection = node.connected(UID)
    with connection:
        peer = node.authenticator().peer(connection)
        caller = asyncio.run(peer.caller())
        peer.close()
    assert caller == SocketCaller(f"pod:{UID}", frozenset({GPUS[0]}), frozenset({GPUS[1]}), "default")
    caller.require_own((GPUS[0],))
    caller.require_seen((GPUS[1],))
    with pytest.raises(RequestError, match="shared by time slicing or MIG") as shared:
        caller.require_own((GPUS[1],))
    assert shared.value.reason is Reason.SHARED
    for unassigned in (GPUS[2], "0", "2", GPUS[0].lower(), f"{GPUS[2]}::0", "nvidia2"):
        with pytest.raises(RequestError, match="which has") as caught:
            caller.require_own((GPUS[0], unassigned))
        assert caught.value.reason is Reason.NOT_YOURS


def test_a_process_in_no_pod_is_not_served(node: PretendNode) -> None:
    process, connection = node.connected(UID)
    (node.folder / "proc" / str(process.pid) / "cgroup").write_text("0::/system.slice/cron.service")
    with connection, pytest.raises(RequestError, match="in no pod of this node") as caught:
        node.authenticator().peer(connection)
    assert caught.value.reason is Reason.NOT_PERMITTED


def test_a_process_that_moved_its_cgroup_is_refused(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    node.pod(OTHER, "neighbour", [GPUS[2]])
    process, connection = node.connected(UID)
    with connection:
        peer = node.authenticator().peer(connection)
        node.add_process(process.pid, OTHER)
        assert "has left it" in refusal(peer).message
        peer.close()


def test_a_connection_of_an_ended_process_is_refused_even_if_its_pid_is_reused(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    process, connection = node.connected(UID)
    with connection:
        peer = node.authenticator().peer(connection)
        process.kill()
        process.communicate()
        assert (node.folder / "proc" / str(process.pid)).exists(), "as if another process had its pid by now"
        assert "has ended" in refusal(peer).message
        peer.close()


def test_a_pod_that_the_kubelet_no_longer_lists_is_refused(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    _, connection = node.connected(UID)
    with connection:
        peer = node.authenticator().peer(connection)
        node.kubelet.pods.clear()
        assert "lists no such pod" in refusal(peer).message
        peer.close()


def test_two_running_pods_with_one_name_are_both_refused(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    (node.folder / "logs" / f"default_trainer_{OTHER}").mkdir()
    old, old_connection = node.connected(OTHER)
    _, connection = node.connected(UID)
    authenticator = node.authenticator()
    with connection, old_connection:
        old_peer, peer = authenticator.peer(old_connection), authenticator.peer(connection)
        assert "another pod of this name still runs" in refusal(peer).message
        assert "another pod of this name still runs" in refusal(old_peer).message
        node.end(old)
        assert asyncio.run(peer.caller()).gpus == {GPUS[0]}
        for each in (old_peer, peer):
            each.close()


def test_without_the_kubelet_no_pod_is_served_and_no_owner_counts_as_gone(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    _, connection = node.connected(UID)
    authenticator = node.authenticator()
    with connection:
        peer = authenticator.peer(connection)
        node.kubelet.fails = True
        assert refusal(peer).reason is Reason.UNAVAILABLE
        assert authenticator.alive(f"pod:{UID}")
        node.kubelet.fails = False
        assert asyncio.run(peer.caller()).owner == f"pod:{UID}"
        peer.close()


def test_a_pod_is_alive_as_long_as_any_of_its_processes(node: PretendNode) -> None:
    authenticator = node.authenticator()
    (first, one), (second, other) = (node.connected(UID) for _ in range(2))
    one.close()
    other.close()
    owner = f"pod:{UID}"
    watched = authenticator.process_of(owner)
    assert watched.pid in {first.pid, second.pid}
    node.end(first)
    assert authenticator.alive(owner)
    node.end(second)
    assert watched.has_ended()
    watched.close()
    assert not authenticator.alive(owner)
    assert authenticator.process_of(owner) is None


def test_a_scan_of_processes_calls_step_for_each_process(node: PretendNode) -> None:
    authenticator = node.authenticator()
    for pid in range(1001, 1004):
        node.add_process(pid, OTHER)
    steps: list[None] = []
    assert authenticator.process_of(f"pod:{UID}", lambda: steps.append(None)) is None
    assert len(steps) == 3
    assert not authenticator.alive(f"pod:{UID}", lambda: steps.append(None))
    assert len(steps) == 6


def test_the_kubelet_is_asked_once_a_second_at_most(node: PretendNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_authenticator, "ANSWER_AGE_SECONDS", 60.0)
    node.pod(UID, "trainer", [GPUS[0]])

    async def ask() -> None:
        authenticator = node.authenticator()
        await asyncio.gather(*(authenticator.caller(UID) for _ in range(50)))

    asyncio.run(ask())
    assert node.kubelet.calls == 1


def test_all_callers_wait_for_a_hung_kubelet_at_the_same_time(
    node: PretendNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    node.kubelet.fails = True

    async def ask() -> list[object]:
        authenticator = node.authenticator()
        answers = await asyncio.gather(*(authenticator.caller(UID) for _ in range(50)), return_exceptions=True)
        node.kubelet.fails = False
        assert (await authenticator.caller(UID)).gpus == {GPUS[0]}, "the next one asks again"
        return list(answers)

    answers = asyncio.run(ask())
    assert {answer.reason for answer in answers if isinstance(answer, RequestError)} == {Reason.UNAVAILABLE}
    assert len(answers) == 50
    assert node.kubelet.calls == 2


def test_a_pod_that_starts_right_after_a_kubelet_answer_is_served(
    node: PretendNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_authenticator, "ANSWER_AGE_SECONDS", 60.0)

    async def ask() -> SocketCaller:
        authenticator = node.authenticator()
        await authenticator.ask_kubelet()
        node.pod(UID, "trainer", [GPUS[0]])
        return await authenticator.caller(UID)

    assert asyncio.run(ask()).gpus == {GPUS[0]}


def test_owners_that_are_no_pods_count_as_alive(node: PretendNode) -> None:
    authenticator = node.authenticator()
    assert authenticator.alive("process:1:2")
    assert not authenticator.alive(f"pod:{UID}")
    assert list((node.folder / "proc").iterdir()) == []


@pytest.mark.parametrize("file", ["cgroup", "stat"])
def test_a_pod_whose_process_cannot_be_read_counts_as_alive(node: PretendNode, file: str) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    process, connection = node.connected(UID)
    authenticator = node.authenticator()
    with connection:
        peer = authenticator.peer(connection)
        # A read fails as it does without a descriptor, but for this file alone.
        path = node.folder / "proc" / str(process.pid) / file
        content = path.read_text()
        path.unlink()
        path.mkdir()
        assert authenticator.alive(f"pod:{UID}")
        assert authenticator.alive(f"pod:{OTHER}") == (file == "cgroup"), "whose it is, its cgroup tells"
        assert authenticator.process_of(f"pod:{UID}") is None
        with pytest.raises(OSError, match=file):
            authenticator.processes.process_by_pod({UID})
        if file == "cgroup":
            assert refusal(peer).reason is Reason.UNAVAILABLE
            with pytest.raises(RequestError, match="can't be identified") as caught:
                authenticator.peer(connection)
            assert caught.value.reason is Reason.UNAVAILABLE
        path.rmdir()
        path.write_text(content)
        assert not authenticator.alive(f"pod:{OTHER}")
        assert authenticator.processes.process_by_pod({UID}) == {UID: process.pid}
        peer.close()


def test_an_observation_is_complete_unless_something_that_the_kubelet_lists_was_left_out(node: PretendNode) -> None:
    def observed() -> bool:
        return asyncio.run(PodAssignments(node.authenticator()).observe(())).is_complete

    node.pod(UID, "trainer", [GPUS[0]])
    assert observed()
    node.kubelet.claims = ("gpu",)
    assert not observed()
    node.kubelet.claims = ()
    node.kubelet.pods["default", "web"] = [GPUS[1]]
    assert not observed(), "it has no uid yet"
    (node.folder / "logs" / f"default_web_{OTHER}").mkdir()
    assert observed()


def test_a_gpu_is_shared_if_a_process_of_no_pod_that_has_it_uses_it_while_a_pod_has_it(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    (own, connection), (stranger, other) = node.connected(UID), node.connected(OTHER)
    connection.close()
    other.close()
    had = Assignment(UID, "default", "trainer", "main", GPUS[0])
    listed = ListedGpus(0.0)
    assignments = PodAssignments(node.authenticator(), lambda: listed)

    def shared(*pids: int, before: Sequence[Assignment] = (had,), read_seconds: float | None = None) -> bool:
        nonlocal listed
        lists = {GPUS[0]: GpuProcessList(pids, is_complete=True)}
        listed = ListedGpus(time.monotonic() if read_seconds is None else read_seconds, lists)
        (found,) = asyncio.run(assignments.observe(before)).assignments
        return found.shared

    assert not shared(own.pid, stranger.pid), "nothing was observed before"
    assert not shared(own.pid, stranger.pid, before=()), "another pod may have had the GPU when the list was read"
    assert not shared(own.pid, stranger.pid, read_seconds=0.0), "the pod may not have had it when the list was read"
    assert shared(own.pid, stranger.pid)
    assert not shared(own.pid, 2**22 - 1), "the other one has ended"
    assert node.authenticator().others(f"pod:{UID}", [own.pid], is_complete=True) == ((), "")
    names, _ = node.authenticator().others(f"pod:{UID}", [own.pid, stranger.pid], is_complete=True)
    assert len(names) == 1
    assert node.authenticator().others(f"pod:{UID}", [stranger.pid], is_complete=False) == ((), PARTIAL_LIST)


def test_a_pod_has_started_once_a_container_of_it_has_a_log_that_is_not_from_before_the_nodes_start(
    node: PretendNode,
) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    authenticator, trainer = node.authenticator(), PodName("default", "trainer")
    container = node.folder / "logs" / f"default_trainer_{UID}" / "main"
    container.mkdir()
    assert not authenticator.has_started(UID, trainer)
    log = container / "0.log"
    # Docker's is a link.
    log.symlink_to("elsewhere")
    assert authenticator.has_started(UID, trainer)
    os.utime(log, (0, 0), follow_symlinks=False)
    assert not authenticator.has_started(UID, trainer)


def test_if_processes_cannot_be_read_no_pod_counts_as_gone_and_none_is_served(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    (node.folder / "logs" / f"default_trainer_{OTHER}").mkdir()
    _, connection = node.connected(UID)
    authenticator = node.authenticator()
    with connection:
        peer = authenticator.peer(connection)
        (node.folder / "proc").rename(node.folder / "hidden")
        (node.folder / "proc").symlink_to("proc")
        assert authenticator.alive(f"pod:{UID}")
        assert refusal(peer).reason is Reason.UNAVAILABLE, "its namesake may run"
        assignments = PodAssignments(authenticator)
        had = Assignment(UID, "default", "trainer", "main", GPUS[0])
        with pytest.raises(RequestError, match="it is unknown which pods run"):
            asyncio.run(assignments.observe([had]))
        peer.close()


def test_names_of_programs_and_cgroups_may_contain_any_bytes(node: PretendNode) -> None:
    node.pod(UID, "trainer", [GPUS[0]])
    process, connection = node.connected(UID)
    connection.close()
    folder = node.folder / "proc" / str(process.pid)
    (folder / "stat").write_bytes(b"1 (\xff\n) S " + b"1 " * 30)
    (folder / "cgroup").write_bytes(cgroup(UID).encode() + b"/\xff\xfe")
    authenticator = node.authenticator()
    assert authenticator.processes.process_by_pod({UID, OTHER}) == {UID: process.pid}
    assert authenticator.alive(f"pod:{UID}")
    assert not authenticator.alive(f"pod:{OTHER}")
