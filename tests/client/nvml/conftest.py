"""Our NVML module on simulated GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nvml_simulator
from nvml_simulator import Machine
from wattloop.nvml import Session


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Two H200 on the virtual clock, for anyone to change, that this process is pointed at."""
    nvml_simulator.load()
    path = nvml_simulator.create(tmp_path / "gpus", model="H200", count=2, clock="virtual", permission="anyone")
    monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, str(path))
    with Machine(path) as opened:
        yield opened


@pytest.fixture
def session(machine: Machine) -> Iterator[Session]:
    """NVML on them."""
    with Session() as opened:
        yield opened
