"""Separate simulated GPUs for each test, and the real pynvml on them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import nvml_simulator
from nvml_simulator import Machine
from support.agents.simulated_programs import MakeMachine, StartNvml


@pytest.fixture
def make_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeMachine]:
    """Create simulated GPUs (default: virtual clock, permission anyone) for this process."""
    made: list[Machine] = []

    def make(**options: object) -> Machine:
        path = tmp_path / f"gpus-{len(made)}"
        nvml_simulator.create(path, **{"clock": "virtual", "permission": "anyone", **options})  # type: ignore[arg-type]
        monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, str(path))
        made.append(Machine(path))
        return made[-1]

    yield make
    for machine in made:
        machine.close()


@pytest.fixture
def start_nvml() -> Iterator[StartNvml]:
    """Initialize the real pynvml on the GPUs created last."""
    nvml_simulator.load()
    import pynvml  # noqa: PLC0415 - after the simulated library is loaded

    def start() -> ModuleType:
        pynvml.nvmlInit()
        return pynvml

    yield start
    with contextlib.suppress(pynvml.NVMLError_Uninitialized):
        while True:
            pynvml.nvmlShutdown()
