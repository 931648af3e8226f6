"""Fixtures of the laboratory's tests: folders of measured reference data."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def power_profiles() -> Path:
    return DATA / "power-profiles"


@pytest.fixture
def zeus_traces() -> Path:
    return DATA / "zeus-traces"
