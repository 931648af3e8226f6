"""A monitor on simulated GPUs whose time the test advances."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import nvml_simulator
from support.sampled_machine import SampledMachine


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SampledMachine]:
    """Two GPUs that are not sampled yet."""
    monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, "")
    machine = SampledMachine(tmp_path / "gpus", gpus=2)
    yield machine
    machine.close()
