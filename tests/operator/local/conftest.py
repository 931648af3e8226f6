"""A folder for local runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.local_runs.local_runs import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "run")
    made.folder.mkdir()
    return made
