"""An agent on simulated GPUs with the virtual clock, for tests of what uses its socket."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nvml_simulator
from nvml_simulator.state_files import Clock
from wattloop.gpus.agent_process import running_agent


@dataclass(frozen=True)
class SimulatedNode:
    """A running agent and its GPUs."""

    gpus: nvml_simulator.Machine
    state: Path
    socket: Path


@contextmanager
def simulated_node(count: int, clock: Clock = "virtual") -> Iterator[SimulatedNode]:
    """Run an agent on this number of A100s."""
    # The path of a socket has at most 107 bytes; pytest's folders are longer.
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as name:
        folder = Path(name)
        state = nvml_simulator.create(folder / "gpus", model="A100", count=count, clock=clock, permission="anyone")
        environment = {"PATH": "/usr/bin:/bin", **nvml_simulator.environment(state)}
        socket = folder / "agent.sock"
        with (
            nvml_simulator.Machine(state) as gpus,
            running_agent(socket, folder / "state", environment=environment, log=folder / "agent.log"),
        ):
            yield SimulatedNode(gpus, state, socket)
