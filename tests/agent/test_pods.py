"""The agent on a node: real cgroups, a real gRPC kubelet, pods that are processes in cgroups."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.kubelet_server import KubeletServer, serving
from support.agents.processes import single_agent
from wattloop.agent import AgentConnection, AgentRequestError

# Started with stdin as a line of [method, arguments]; answers a line of [result or null, reason or
# null].
POD = """
import json, sys
from wattloop.agent import AgentConnection, AgentRequestError
connection = AgentConnection(sys.argv[1])
for line in sys.stdin:
    method, arguments = json.loads(line)
    try:
        result = getattr(connection, method)(*arguments)
        print(json.dumps([len(result), None]), flush=True)
    except AgentRequestError as refused:
        print(json.dumps([None, refused.reason]), flush=True)
"""


def hierarchies() -> list[Path]:
    """Where cgroups can be made on this machine: of v2, and of one controller of v1."""
    root = Path("/sys/fs/cgroup")
    return [path for path in (root, root / "unified", root / "pids") if (path / "cgroup.procs").exists()]


@dataclass
class Pod:
    """One pod: a uid, a name, its processes."""

    hierarchy: Path
    name: str
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def cgroup(self) -> Path:
        return self.hierarchy / "kubepods" / f"pod{self.uid}" / ("c" * 64)

    def start(self, agent_fixture: AgentFixture) -> subprocess.Popen[str]:
        """One more process in the pod; it is in its cgroup before it runs."""
        self.cgroup.mkdir(parents=True, exist_ok=True)
        enter = f'echo $$ > {self.cgroup}/cgroup.procs && exec "$@"'
        process = subprocess.Popen(
            ["sh", "-c", enter, "sh", sys.executable, "-c", POD, str(agent_fixture.socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        entered = self.cgroup / "cgroup.procs"
        until(lambda: str(process.pid) in entered.read_text().split(), "the process is in its pod's cgroup")
        return process

    def ask(self, method: str, *arguments: Any, process: int = 0) -> tuple[int | None, str | None]:
        """The agent's answer to one of its processes: the number of entries, or the reason of the refusal."""
        program = self.processes[process]
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps([method, arguments]) + "\n")
        program.stdin.flush()
        count, reason = json.loads(program.stdout.readline())
        return count, reason

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        for folder in (self.cgroup, self.cgroup.parent):
            if folder.exists():
                folder.rmdir()


@dataclass
class Cluster:
    """An agent fixture whose agent runs in node mode."""

    agent_fixture: AgentFixture
    kubelet: KubeletServer
    hierarchy: Path
    pods: list[Pod] = field(default_factory=list)

    def pod(self, name: str, ids: list[str], namespace: str = "default") -> Pod:
        pod = Pod(self.hierarchy, name)
        self.pods.append(pod)
        (self.agent_fixture.folder / "logs" / f"{namespace}_{name}_{pod.uid}").mkdir()
        # Listed once it runs: the agent takes a pod of which it has seen no process to be starting,
        # for a minute.
        pod.start(self.agent_fixture)
        self.kubelet.pods[namespace, name] = ids
        return pod


@pytest.fixture(params=["v2", "v1"])
def cluster(request: pytest.FixtureRequest, agent_fixture: AgentFixture) -> Iterator[Cluster]:
    named = [path for path in hierarchies() if (path.name == "pids") == (request.param == "v1")]
    if not named:
        pytest.skip(f"cgroup {request.param} is not mounted here")
    with made_cgroups(named[0]) as root, serving(agent_fixture.folder / "kubelet.sock") as kubelet:
        (agent_fixture.folder / "logs").mkdir()
        (agent_fixture.state / "monitor").mkdir(parents=True)
        policy = {"policy": "one-team", "namespaces": ["default"]}
        (agent_fixture.state / "monitor" / "bounds.json").write_text(json.dumps({"bounds": [policy]}))
        environment = {
            **agent_fixture.environment,
            "WATTLOOP_AGENT_IDENTITY": "pod",
            "WATTLOOP_AGENT_KUBELET_SOCKET": str(agent_fixture.folder / "kubelet.sock"),
            "WATTLOOP_AGENT_POD_LOGS": str(agent_fixture.folder / "logs"),
        }
        with single_agent(agent_fixture.socket, agent_fixture.state, environment=environment, log=agent_fixture.log):
            cluster = Cluster(agent_fixture, kubelet, root)
            yield cluster
            for pod in cluster.pods:
                pod.end()


@contextmanager
def made_cgroups(hierarchy: Path) -> Iterator[Path]:
    # A node in a container has its kubepods below a cgroup of its own, as this one.
    root = hierarchy / f"node-{uuid.uuid4()}"
    try:
        (root / "kubepods").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no cgroup can be made in {hierarchy}: {error.strerror}")
    try:
        yield root
    finally:
        (root / "kubepods").rmdir()
        root.rmdir()


def test_a_pod_reaches_only_its_own_gpus(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    trainer = cluster.pod("trainer", agent_fixture.uuids[:1])
    neighbour = cluster.pod("neighbour", agent_fixture.uuids[1:2])
    sharer = cluster.pod("sharer", [f"{agent_fixture.uuids[2]}::0"])
    assert trainer.ask("gpus") == (1, None)
    assert trainer.ask("hold_limit", agent_fixture.uuids[:1], 200) == (1, None)
    assert trainer.ask("hold_limit", agent_fixture.uuids[:2], 150) == (None, "NotYours")
    assert trainer.ask("energy", agent_fixture.uuids[1:]) == (None, "NotYours")
    assert neighbour.ask("release", agent_fixture.uuids[:1]) == (None, "NotYours")
    assert neighbour.ask("leases") == (0, None)
    assert sharer.ask("energy") == (1, None)
    assert sharer.ask("hold_limit", agent_fixture.uuids[2:], 200) == (None, "Shared")
    assert agent_fixture.limits == [200, 400, 400]


def test_only_pods_of_admitted_namespaces_can_hold_a_limit(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    allowed = cluster.pod("trainer", agent_fixture.uuids[:1])
    other = cluster.pod("stranger", agent_fixture.uuids[1:2], namespace="search")
    assert other.ask("hold_limit", agent_fixture.uuids[1:2], 200) == (None, "NotPermitted")
    assert other.ask("hold_clocks", agent_fixture.uuids[1:2], 900) == (None, "NotPermitted")
    assert other.ask("energy") == (1, None)
    assert allowed.ask("hold_limit", agent_fixture.uuids[:1], 200) == (1, None)
    assert agent_fixture.limits == [200, 400, 400]


def test_a_mig_device_shows_its_gpu_and_sets_nothing_on_it(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    agent_fixture.gpus.partition(1, 2)
    first, second = (part.uuid for part in agent_fixture.gpus.describe().gpus[1].mig_devices)
    renter = cluster.pod("renter", [first])
    replica = cluster.pod("replica", [f"{second}::1"])
    for pod in (renter, replica):
        assert pod.ask("gpus") == (1, None)
        assert pod.ask("energy", agent_fixture.uuids[1:2]) == (1, None)
        assert pod.ask("hold_limit", agent_fixture.uuids[1:2], 200) == (None, "Shared")
        assert pod.ask("hold_clocks", agent_fixture.uuids[1:2], 900) == (None, "Shared")
        assert pod.ask("energy", agent_fixture.uuids[:1]) == (None, "NotYours")
        assert pod.ask("hold_limit", [first], 200) == (None, "NotYours")
    assert agent_fixture.limits == [400, 400, 400]


def test_a_removed_mig_device_gives_no_gpu(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    agent_fixture.gpus.partition(1, 2)
    left = cluster.pod("left", [agent_fixture.gpus.describe().gpus[1].mig_devices[0].uuid])
    assert left.ask("gpus") == (1, None)
    agent_fixture.gpus.partition(1, 7)
    assert left.ask("gpus") == (0, None)
    assert left.ask("energy", agent_fixture.uuids[1:2]) == (None, "NotYours")


def test_a_process_outside_every_pod_is_refused(cluster: Cluster) -> None:
    with AgentConnection(cluster.agent_fixture.socket) as connection, pytest.raises(AgentRequestError) as caught:
        connection.gpus()
    assert caught.value.reason == "NotPermitted"


def test_a_lease_is_the_pods_and_ends_with_its_last_process(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    trainer = cluster.pod("trainer", agent_fixture.uuids)
    trainer.start(agent_fixture)
    assert trainer.ask("hold_limit", agent_fixture.uuids, 200) == (3, None)
    assert trainer.ask("hold_limit", agent_fixture.uuids, 250, process=1) == (3, None), (
        "another process of the same pod"
    )
    trainer.processes[0].kill()
    trainer.processes[0].communicate()
    assert trainer.ask("hold_limit", agent_fixture.uuids, 300, process=1) == (3, None)
    assert agent_fixture.limits == [300, 300, 300]
    trainer.processes[1].kill()
    until(lambda: agent_fixture.limits == [400, 400, 400], "restored after the pod's last process")


def test_a_process_that_moves_to_another_pods_cgroup_is_refused(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    thief = cluster.pod("thief", [])
    victim = cluster.pod("victim", agent_fixture.uuids)
    assert victim.ask("hold_limit", agent_fixture.uuids, 200) == (3, None)
    assert thief.ask("gpus") == (0, None)
    (victim.cgroup / "cgroup.procs").write_text(str(thief.processes[0].pid))
    assert thief.ask("hold_limit", agent_fixture.uuids, 100) == (None, "NotPermitted")
    assert agent_fixture.limits == [200, 200, 200]


@pytest.mark.processes
def test_a_completed_pod_that_is_still_listed_no_longer_uses_its_gpu(cluster: Cluster) -> None:
    ledger = cluster.agent_fixture.state / "monitor" / "energy.json"
    trainer = cluster.pod("trainer", cluster.agent_fixture.uuids[:1])
    cluster.pod("other", cluster.agent_fixture.uuids[1:2])

    def ended() -> dict[str, bool]:
        intervals = json.loads(ledger.read_text())["ledger"]["intervals"] if ledger.exists() else []
        return {interval["pod"]: interval["ended"] for interval in intervals}

    until(lambda: ended() == {"trainer": False, "other": False}, "both have their GPUs")
    trainer.processes[0].kill()
    trainer.processes[0].communicate()
    until(lambda: ended() == {"trainer": True, "other": False}, "the one that has no process has given its GPU back")
