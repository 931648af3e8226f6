"""Simulated GPUs in a folder of their own, with what an agent on them needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nvml_simulator

# For what comes by itself, however busy the machine is: a condition that holds ends the wait.
DEADLINE_SECONDS = 60.0
# A write to a slow disk fits into it: a power controller that waits for one is not to be taken for one that hangs.
HEARTBEAT_TIMEOUT_SECONDS = 2.5


@dataclass
class Bench:
    """A folder with simulated GPUs and what an agent on them needs."""

    folder: Path
    gpus: nvml_simulator.Machine

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
        timeout = {"WATTLOOP_AGENT_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_SECONDS)}
        return {**os.environ, **simulated, **timeout}

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.gpus.describe().gpus]

    @property
    def limits(self) -> list[float]:
        return [gpu.power_limit_watts for gpu in self.gpus.describe().gpus]


def until(holds: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until another process has done its part; it says nothing when it has."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)
