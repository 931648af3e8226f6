"""Fixtures of the planner's tests: folders of measured reference data."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def zeus_traces() -> Path:
    return DATA / "zeus-traces"
