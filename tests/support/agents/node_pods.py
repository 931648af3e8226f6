"""An agent on a node: real cgroups, a real gRPC kubelet, pods that are processes in cgroups."""

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

# Started with stdin as a line of [method, arguments]; answers a line of [result or null, reason or null].
POD = """
import json, sys
from wattloop.gpus.agent import AgentConnection, AgentRequestError
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
        # Listed once it runs: the agent takes a pod of which it has seen no process to be starting, for a minute.
        pod.start(self.agent_fixture)
        self.kubelet.pods[namespace, name] = ids
        return pod

    def clear(self) -> None:
        """End all pods, and wait until the agent has restored their GPUs."""
        for pod in self.pods:
            pod.end()
        self.pods.clear()
        self.kubelet.pods.clear()
        until(lambda: self.agent_fixture.limits == [400, 400, 400], "every GPU is restored")


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


@contextmanager
def running_node(agent_fixture: AgentFixture, version: str, **settings: object) -> Iterator[Cluster]:
    """Run an agent in node mode, with a policy that admits the namespace default alone.

    Args:
        version: Version of the cgroups, v1 or v2; skips the test where it is not mounted.
    """
    named = [path for path in hierarchies() if (path.name == "pids") == (version == "v1")]
    if not named:
        pytest.skip(f"cgroup {version} is not mounted here")
    with made_cgroups(named[0]) as root, serving(agent_fixture.folder / "kubelet.sock") as kubelet:
        (agent_fixture.folder / "logs").mkdir()
        (agent_fixture.state / "monitor").mkdir(parents=True)
        policy = {"policy": "one-team", "namespaces": ["default"]}
        (agent_fixture.state / "monitor" / "bounds.json").write_text(json.dumps({"bounds": [policy]}))
        with agent_fixture.running(**agent_fixture.node_settings, **settings):
            cluster = Cluster(agent_fixture, kubelet, root)
            yield cluster
            for pod in cluster.pods:
                pod.end()
