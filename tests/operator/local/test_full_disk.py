"""A disk that is full: said in a sentence, nothing left behind, and gone on from when there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.local_runs.local_runs import LocalJob
from wattloop_operator.store import open_store

pytestmark = pytest.mark.processes


# Enough for the small files of a run, too little for the first change of a database.
MAX_FILE_BYTES = 10 * 1024


def test_a_full_disk_ends_the_run_with_a_sentence_and_the_next_goes_on(local_job: LocalJob, tmp_path: Path) -> None:
    local_job.job()
    path = tmp_path / "wattloop.db"
    open_store(path).close()
    options = ("--recurrences", "1", "--database", f"sqlite:///{path}")
    run = local_job.start(*options, largest_file_bytes=MAX_FILE_BYTES)
    assert run.ended() == 1
    (told,) = run.told.read_text().splitlines()
    assert told.startswith(f"wattloop run: sqlite:///{path}: cannot ")
    assert told.endswith("check the disk's health, its free space and the limit on file sizes (ulimit -f)")
    assert local_job.run(*options) == 0
    assert local_job.outcomes() == [("0", "0", "reached")]
