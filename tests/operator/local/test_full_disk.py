"""A full disk ends a run with a clear message, and a later run resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.local_runs.local_runs import LocalJob
from wattloop_operator.store import open_store

pytestmark = pytest.mark.processes


# Enough for the small files of a run, but not for the first change of a database.
MAX_FILE_BYTES = 10 * 1024


def test_a_full_disk_ends_the_run_with_a_message_and_the_next_run_resumes(local_job: LocalJob, tmp_path: Path) -> None:
    local_job.job()
    path = tmp_path / "wattloop.db"
    open_store(path).close()
    options = ("--recurrences", "1", "--database", f"sqlite:///{path}")
    run = local_job.start(*options, max_file_bytes=MAX_FILE_BYTES)
    assert run.ended() == 1
    (message,) = run.stderr.read_text().splitlines()
    assert message.startswith(f"wattloop run: sqlite:///{path}: cannot ")
    assert message.endswith("check the disk's health, its free space and the limit on file sizes (ulimit -f)")
    assert local_job.run(*options) == 0
    assert local_job.outcomes() == [("0", "0", "reached")]
