"""A job for local runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.local_runs.local_runs import LocalJob


@pytest.fixture
def local_job(tmp_path: Path) -> LocalJob:
    job = LocalJob(tmp_path / "run")
    job.folder.mkdir()
    return job
