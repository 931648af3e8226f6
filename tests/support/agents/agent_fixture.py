"""Simulated GPUs in a temporary folder, with the paths and environment of an agent on them."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import nvml_simulator
from wattloop.gpus.agent_process import running_agent, start_agent, stop_agent

# Bounds every wait, generously for a busy machine: a wait ends as soon as its condition holds.
DEADLINE_SECONDS = 60.0
# Longer than any pause of a process on a busy machine, and than the restart of one.
PATIENT_HEARTBEAT_TIMEOUT_SECONDS = 30.0
# For tests in which a part hangs. Longer than a write to a slow disk, so that a power controller
# that waits for one does not count as hung.
HEARTBEAT_TIMEOUT_SECONDS = 2.5
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.005, 0.05


@dataclass
class AgentFixture:
    """A folder with simulated GPUs, and the paths and environment of an agent that uses them.

    Attributes:
        heartbeat_timeout_seconds: The time after which a part of the agent counts as hung.
    """

    folder: Path
    gpus: nvml_simulator.Machine
    heartbeat_timeout_seconds: float = PATIENT_HEARTBEAT_TIMEOUT_SECONDS

    @property
    def socket(self) -> Path:
        return self.folder / "agent.sock"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def log(self) -> Path:
        return self.folder / "agent.log"

    @property
    def environment(self) -> dict[str, str]:
        simulated = nvml_simulator.environment(self.gpus.path)
        timeout = {"WATTLOOP_AGENT_HEARTBEAT_TIMEOUT": str(self.heartbeat_timeout_seconds)}
        return {**os.environ, **simulated, **timeout}

    def environment_with(self, **settings: object) -> dict[str, str]:
        """The environment with these settings of the agent."""
        return self.environment | {f"WATTLOOP_AGENT_{name.upper()}": str(value) for name, value in settings.items()}

    @property
    def node_settings(self) -> dict[str, object]:
        """The settings of an agent whose callers are pods of a node."""
        return {"identity": "pod", "kubelet_socket": self.folder / "kubelet.sock", "pod_logs": self.folder / "logs"}

    def start(self, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start an agent, which serves when this returns."""
        return start_agent(self.socket, self.state, environment=environment or self.environment, log=self.log)

    @contextmanager
    def running(
        self, environment: Mapping[str, str] | None = None, **settings: object
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run an agent for the duration of a block; it is not restarted when it dies."""
        process = self.start(environment or self.environment_with(**settings))
        try:
            yield process
        finally:
            stop_agent(process)

    def supervised(self) -> AbstractContextManager[None]:
        """Run an agent for the duration of a block; it is restarted when it dies."""
        return running_agent(self.socket, self.state, environment=self.environment, log=self.log)

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.gpus.describe().gpus]

    @property
    def limits(self) -> list[float]:
        return [gpu.power_limit_watts for gpu in self.gpus.describe().gpus]


def short_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder whose sockets' paths fit into the kernel's 107 bytes, as pytest's own folders' do not."""
    return tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp")


@contextmanager
def new_agent_fixture(folder: Path) -> Iterator[AgentFixture]:
    """Three GPUs in a folder."""
    state = nvml_simulator.create(folder / "gpus", model="A100", count=3, clock="virtual", permission="anyone")
    with nvml_simulator.Machine(state) as gpus:
        yield AgentFixture(folder, gpus)


def until(holds: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Poll until a condition that another process brings about holds; less often the longer it takes."""
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(pause)
        pause = min(1.5 * pause, _LAST_PAUSE_SECONDS)
