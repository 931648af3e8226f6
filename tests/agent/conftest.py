"""Simulated GPUs and real agents on them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.bench import Bench, until
from wattloop.agent_process import end_agent, start_agent


def short_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder whose sockets' paths fit into the kernel's 107 bytes, as pytest's own folders' do not."""
    return tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp")


@contextmanager
def new_bench(folder: Path) -> Iterator[Bench]:
    state = nvml_simulator.create(folder / "gpus", model="A100", count=3, clock="virtual", permission="anyone")
    with nvml_simulator.Machine(state) as gpus:
        yield Bench(folder, gpus)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as name:
        yield Path(name)


@pytest.fixture
def bench(folder: Path) -> Iterator[Bench]:
    with new_bench(folder) as bench:
        yield bench


@pytest.fixture(scope="module")
def agent_of_module() -> Iterator[Bench]:
    with short_folder() as name, new_bench(Path(name)) as bench:
        process = start_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log)
        yield bench
        assert end_agent(process) == 0, bench.log.read_text()


@pytest.fixture
def agent(agent_of_module: Bench) -> Iterator[Bench]:
    """A bench with an agent that serves its socket; a module's tests share it, each finds the GPUs as new."""
    yield agent_of_module
    agent_of_module.gpus.clear_faults()
    until(lambda: agent_of_module.limits == [400, 400, 400], "whoever held a GPU is gone")
