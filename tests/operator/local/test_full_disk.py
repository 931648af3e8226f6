"""A full disk ends a run with a clear message, and a later run resumes."""

import subprocess
from collections.abc import Iterator
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


# A training that prints 300 kB in each epoch, and ends when its output cannot be written.
TALKATIVE = """
import wattloop
with wattloop.Run(batch_size=8, max_epochs=20) as run:
    for epoch in run.epochs():
        print("x" * 300_000, flush=True)
        run.report(metric=0.1 * (epoch + 1))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 700 KiB, of which a run's own files take about 250."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=700k", "wattloop", folder]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_training_that_fails_as_its_output_fills_the_disk_blames_no_batch_size_and_is_run_again(
    local_job: LocalJob, small_disk: Path, tmp_path: Path
) -> None:
    local_job.job(TALKATIVE)
    output, database = small_disk / "output", f"sqlite:///{tmp_path / 'wattloop.db'}"
    options = ("--recurrences", "1", "--database", database)
    run = local_job.start(*options, output=output)
    assert run.ended() == 1
    message = run.stderr.read_text().splitlines()[-1]
    assert message.startswith(f"wattloop run: {output / 'logs'}: the disk is full, and a training whose output")
    with open_store(tmp_path / "wattloop.db") as store:
        results = [each.body.get("status", {}).get("result") for each in store.objects.list("TrainingRecurrence")]
    assert results == [None]
    subprocess.run(["mount", "-o", "remount,size=40m", small_disk], check=True)
    assert local_job.run(*options, output=output) == 0
    with open_store(tmp_path / "wattloop.db") as store:
        results = [each.body["status"]["result"] for each in store.objects.list("TrainingRecurrence")]
    assert results == ["Disrupted", "Reached"]
