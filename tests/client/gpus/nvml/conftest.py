"""`wattloop.gpus.nvml` on simulated GPUs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import nvml_simulator
from nvml_simulator import Machine
from wattloop.gpus.nvml import Session


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Two simulated H200 on the virtual clock, which any user may change, selected by the environment."""
    nvml_simulator.load()
    path = nvml_simulator.create(tmp_path / "gpus", model="H200", count=2, clock="virtual", permission="anyone")
    monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, str(path))
    with Machine(path) as opened:
        yield opened


@pytest.fixture
def session(machine: Machine) -> Iterator[Session]:
    """An NVML session on the simulated GPUs."""
    with Session() as opened:
        yield opened
