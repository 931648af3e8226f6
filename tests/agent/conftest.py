"""Simulated GPUs and real agents on them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Bench

import nvml_simulator
from wattloop.agent_process import end_agent, start_agent


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path has 107 bytes at most; pytest's own folders are longer.
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def bench(folder: Path) -> Iterator[Bench]:
    state = nvml_simulator.create(folder / "gpus", model="A100", count=3, clock="virtual", permission="anyone")
    with nvml_simulator.Machine(state) as gpus:
        yield Bench(folder, gpus)


@pytest.fixture
def agent(bench: Bench) -> Iterator[Bench]:
    """The bench with an agent that serves its socket."""
    process = start_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log)
    yield bench
    assert end_agent(process) == 0, bench.log.read_text()
