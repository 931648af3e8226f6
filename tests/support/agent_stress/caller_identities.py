"""The identities of callers: processes of a laptop, or pods of a node with a kubelet."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from support.agent_stress.agent_model import Identity
from support.agent_stress.caller_processes import CallerProcess
from wattloop_agent.monitor.gpu_meter import Meter
from wattloop_agent.monitor.identity import ProcessAuthenticator
from wattloop_agent.monitor.pods.pod_authenticator import Node, PodAuthenticator

AgentAuthenticator = ProcessAuthenticator | PodAuthenticator


class Identities(Protocol):
    """Makes callers identifiable for the agent, and knows their identities.

    Attributes:
        is_identified_at_once: The agent can identify a new caller without a delay.
    """

    is_identified_at_once: bool

    def make_authenticator(self, meter: Meter) -> AgentAuthenticator:
        """The agent's own authenticator for these callers."""

    async def identify(self, spawned: Sequence[CallerProcess]) -> list[Identity]:
        """The identities of these processes, once the agent can determine them."""

    def remove(self, caller: Identity) -> None:
        """Remove a dead caller."""


class Processes:
    """On a laptop: every process may use every GPU."""

    is_identified_at_once = True

    def make_authenticator(self, meter: Meter) -> AgentAuthenticator:
        return ProcessAuthenticator()

    async def identify(self, spawned: Sequence[CallerProcess]) -> list[Identity]:
        return [Identity(f"process:{process.pid}:{process.start_ticks()}") for process in spawned]

    def remove(self, caller: Identity) -> None:
        """Nothing to do: the kernel knows."""


@dataclass
class Pods:
    """On a node: one process per pod. All GPUs are exclusive but the last, which ten pods share.

    A dead pod's GPUs are assigned to the next pod.

    Attributes:
        folder: The folder of the kubelet's socket, the pods' logs and a fake /proc.
        gpus: All GPUs of the machine.
        given: The kubelet's assignments, by (namespace, name).
    """

    folder: Path
    gpus: Sequence[str]
    given: dict[tuple[str, str], list[str]]
    free: list[list[str]] = field(default_factory=list)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    is_identified_at_once: bool = False

    @classmethod
    @contextmanager
    def on(cls, folder: Path, gpus: Sequence[str]) -> Iterator[Pods]:
        from support.agents.kubelet_server import serving  # noqa: PLC0415 - forks come before gRPC's threads

        (folder / "logs").mkdir()
        (folder / "proc").mkdir()
        with serving(folder / "kubelet.sock") as kubelet:
            first, *middle, last = gpus
            exclusive = [[first, middle[0]], *([gpu] for gpu in middle[1:])]
            shared = [[f"{last}::{replica}"] for replica in range(10)]
            yield cls(folder, gpus, kubelet.pods, [*shared, *exclusive])

    def make_authenticator(self, meter: Meter) -> AgentAuthenticator:
        node = Node(self.folder / "kubelet.sock", self.folder / "logs", self.folder / "proc")
        return PodAuthenticator(meter.uuid_by_device, node)

    async def identify(self, spawned: Sequence[CallerProcess]) -> list[Identity]:
        identities = [self._add(process) for process in spawned]
        # The agent caches the kubelet's answer for a second.
        await asyncio.sleep(1.05)
        return identities

    def _add(self, process: CallerProcess) -> Identity:
        uid = str(uuid.uuid4())
        folder = self.folder / "proc" / str(process.pid)
        folder.mkdir()
        (folder / "stat").symlink_to(f"/proc/{process.pid}/stat")
        (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/{'c' * 64}\n")
        ids = self.free.pop() if self.free else []
        name = ("training", f"pod-{process.pid}")
        (self.folder / "logs" / f"training_{name[1]}_{uid}").mkdir()
        self.given[name] = ids
        owner = f"pod:{uid}"
        self.names[owner] = name
        shared = frozenset(each.partition("::")[0] for each in ids if "::" in each)
        return Identity(owner, frozenset(ids) if not shared else frozenset(), shared)

    def remove(self, caller: Identity) -> None:
        name = self.names.pop(caller.owner)
        self.free.append(self.given.pop(name))
        (self.folder / "logs" / f"training_{name[1]}_{caller.owner.removeprefix('pod:')}").rmdir()
        gone = self.folder / "proc" / name[1].removeprefix("pod-")
        for path in (gone / "stat", gone / "cgroup"):
            path.unlink()
        gone.rmdir()
