"""Who the callers are: processes of a laptop, or pods of a node whose kubelet says which GPUs they have."""

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
from wattloop_agent.monitor.meter import Meter
from wattloop_agent.monitor.pods.pod_authenticator import Node, PodAuthenticator
from wattloop_agent.monitor.process_authenticator import ProcessAuthenticator

AgentAuthenticator = ProcessAuthenticator | PodAuthenticator


class Identities(Protocol):
    """Makes callers known to the agent, and says who they are.

    Attributes:
        known_at_once: The agent need not be waited for to know a newborn.
    """

    known_at_once: bool

    def make_authenticator(self, meter: Meter) -> AgentAuthenticator:
        """The agent's own way to tell them apart."""

    async def known(self, newborn: Sequence[CallerProcess]) -> list[Identity]:
        """Who these processes are, once the agent can know it."""

    def buried(self, who: Identity) -> None:
        """This one is dead."""


class Processes:
    """On a laptop: every GPU is everyone's."""

    known_at_once = True

    def make_authenticator(self, meter: Meter) -> AgentAuthenticator:
        return ProcessAuthenticator()

    async def known(self, newborn: Sequence[CallerProcess]) -> list[Identity]:
        return [Identity(f"process:{process.pid}:{process.start_ticks()}") for process in newborn]

    def buried(self, who: Identity) -> None:
        """The kernel knows."""


@dataclass
class Pods:
    """On a node: a process a pod. The GPUs are given out whole but the last, which ten pods share by time slicing.

    A pod's name and GPUs are for one pod at a time: a dead pod's GPUs go to the next that is born.

    Attributes:
        folder: For the kubelet's socket, the pods' logs and the cgroups as /proc would show them.
        gpus: All of the machine.
        given: What the kubelet says, by (namespace, name).
    """

    folder: Path
    gpus: Sequence[str]
    given: dict[tuple[str, str], list[str]]
    free: list[list[str]] = field(default_factory=list)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    known_at_once: bool = False

    @classmethod
    @contextmanager
    def on(cls, folder: Path, gpus: Sequence[str]) -> Iterator[Pods]:
        from support.agents.kubelet_server import serving  # noqa: PLC0415 - forks come before gRPC's threads

        (folder / "logs").mkdir()
        (folder / "proc").mkdir()
        with serving(folder / "kubelet.sock") as kubelet:
            first, *middle, last = gpus
            whole = [[first, middle[0]], *([gpu] for gpu in middle[1:])]
            shared = [[f"{last}::{replica}"] for replica in range(10)]
            yield cls(folder, gpus, kubelet.pods, [*shared, *whole])

    def make_authenticator(self, meter: Meter) -> AgentAuthenticator:
        node = Node(self.folder / "kubelet.sock", self.folder / "logs", self.folder / "proc")
        return PodAuthenticator(meter.uuid_by_device, node)

    async def known(self, newborn: Sequence[CallerProcess]) -> list[Identity]:
        identities = [self._born(process) for process in newborn]
        # The agent takes the kubelet's word for a second.
        await asyncio.sleep(1.05)
        return identities

    def _born(self, process: CallerProcess) -> Identity:
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

    def buried(self, who: Identity) -> None:
        name = self.names.pop(who.owner)
        self.free.append(self.given.pop(name))
        (self.folder / "logs" / f"training_{name[1]}_{who.owner.removeprefix('pod:')}").rmdir()
        gone = self.folder / "proc" / name[1].removeprefix("pod-")
        for path in (gone / "stat", gone / "cgroup"):
            path.unlink()
        gone.rmdir()
