"""What a local run writes is its user's alone, and its database has no secret of the job."""

import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.local_runs.local_runs import LocalJob
from wattloop_operator.local.output_folder import OutputFolder
from wattloop_operator.store import open_store

pytestmark = pytest.mark.processes

SECRETS = {"HF_TOKEN": "hunter2", "DB_PASSWORD": "hunter3", "apiKey": "hunter4"}
# A training that prints what it gets, and ends without its metric if that is not all.
TRAINING = """
import os
import wattloop
values = [os.environ[name] for name in ("HF_TOKEN", "DB_PASSWORD", "apiKey", "MAX_TOKENS")]
with wattloop.Run(batch_size=8, max_epochs=1) as run:
    for epoch in run.epochs():
        run.step()
        run.report(metric=float(values == ["hunter2", "hunter3", "hunter4", "512"]))
"""


@pytest.fixture(autouse=True)
def usual_permissions() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def secret_job(folder: Path) -> LocalJob:
    environment = [{"name": name, "value": value} for name, value in (SECRETS | {"MAX_TOKENS": "512"}).items()]
    container = {"name": "train", "image": "none", "command": ["python", "train.py"], "env": environment}
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    job = LocalJob(folder)
    job.job(TRAINING, template=template)
    return job


def modes(folder: Path) -> dict[str, str]:
    found = (folder, *folder.glob("*"), *folder.glob("logs/*"))
    return {str(each.relative_to(folder.parent)): stat.filemode(each.stat().st_mode) for each in found}


def stored_values(database: Path) -> Iterator[bytes]:
    connection = sqlite3.connect(database)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows: list[Any] = [row for table in tables for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    for value in (value for row in rows for value in row):
        yield zlib.decompress(value) if isinstance(value, bytes) else str(value).encode()


def test_others_can_read_nothing_of_a_run_and_its_database_has_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = secret_job(tmp_path)
    for recurrences in ("1", "2"):
        assert job.run("--recurrences", recurrences) == 0
    assert {outcome for *_, outcome in job.outcomes()} == {"reached"}
    with open_store(job.output / "wattloop.db"):
        found = modes(job.output)
    assert "output/wattloop.db-wal" in found
    assert {name: mode for name, mode in found.items() if mode[4:] != "------"} == {}
    values = list(stored_values(job.output / "wattloop.db"))
    assert any(b"MAX_TOKENS" in value and b"512" in value for value in values)
    assert not any(secret.encode() in value for value in values for secret in SECRETS.values())
    assert not any(secret in "".join(capsys.readouterr()) for secret in SECRETS.values())


def test_a_folder_that_exists_keeps_its_permissions_and_a_line_says_who_reads_its_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = secret_job(tmp_path)
    job.output.mkdir(mode=0o755)
    assert job.run("--recurrences", "1") == 0
    # What is new in it is not readable, so nothing is said.
    assert modes(job.output)["output"] == "drwxr-xr-x"
    assert modes(job.output)["output/wattloop.db"] == "-rw-------"
    assert "can read the database" not in capsys.readouterr().err
    (job.output / "wattloop.db").chmod(0o644)
    assert job.run("--recurrences", "2") == 0
    assert f"chmod -R go= {job.output}" in capsys.readouterr().err
    assert modes(job.output)["output/wattloop.db"] == "-rw-r--r--"


@pytest.mark.parametrize(
    ("folder", "database", "is_said"),
    [(0o755, 0o644, True), (0o750, 0o640, True), (0o700, 0o644, False), (0o755, 0o600, False), (0o750, 0o604, False)],
)
def test_it_is_said_only_if_somebody_else_can_read_the_database(
    tmp_path: Path, folder: int, database: int, is_said: bool
) -> None:
    (tmp_path / "wattloop.db").touch()
    (tmp_path / "wattloop.db").chmod(database)
    tmp_path.chmod(folder)
    assert bool(OutputFolder(tmp_path).readers_advice()) == is_said
