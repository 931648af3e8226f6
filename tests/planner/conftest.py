"""Where the reference measurements are, and how observations are written down briefly."""

from __future__ import annotations

from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def power_profiles() -> Path:
    return reference_folder("power-profiles")


@pytest.fixture
def zeus_traces() -> Path:
    return reference_folder("zeus-traces")


def reference_folder(name: str) -> Path:
    folder = REFERENCE / name
    if not folder.is_dir():
        pytest.skip(f"the reference data ../shared/data/{name} is absent")
    return folder
