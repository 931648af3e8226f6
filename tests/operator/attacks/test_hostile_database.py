"""A database that others wrote or a disk damaged: it is refused, or a row is left out by name, or all is as it was."""

import random
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from support.live_page import serving
from support.local_runs.local_runs import LocalJob
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.main import main
from wattloop_operator.store.store import open_store

pytestmark = pytest.mark.processes

# Of processor time: far more than the commands take together for three rows.
SECONDS = 10.0
CLIENT = httpx.Client(timeout=90)
SECRET = "SECRETBODY"
QUERIED = ("/job", "/conditions", "/api/job")
PAGES = ("/", "/job", "/conditions", "/cluster", "/month", "/api/jobs", "/api/job", "/api/month")
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT kept.* FROM kept, c"
# Statements that change a database, and what the refusal says.
REFUSED = {
    "ALTER TABLE observations RENAME TO kept; CREATE VIEW observations AS " + ENDLESS: "found view 'observations'",
    "CREATE TRIGGER t AFTER UPDATE ON objects BEGIN DELETE FROM observations; END": "found trigger 't'",
    "CREATE VIRTUAL TABLE v USING fts5(text)": "found virtual table 'v'",
    "ALTER TABLE observations ADD COLUMN g AS (hex(zeroblob(1000)))": "generated column g of table 'observations'",
    "UPDATE observations SET reason = hex(zeroblob(9000000))": "it has a larger value than Wattloop writes",
    "UPDATE wattloop_database SET schema_version = 'abc'": "column schema_version: found 'abc', expected an integer",
    "PRAGMA foreign_keys = OFF; INSERT INTO power_measurements VALUES (99, 1, 1, 1, 1)": "belongs to no row",
}
# Statements that spoil one row, and what the message about it says.
SECOND = "WHERE recurrence = 1"
JOB, ATTEMPT = "WHERE kind = 'RecurringTrainingJob'", "WHERE kind = 'TrainingRecurrence' AND name LIKE 'tiny-00001%'"
UNREADABLE = {
    f"UPDATE observations SET finished_at = 'yesterday' {SECOND}": "column finished_at: found 'yesterday'",
    f"UPDATE observations SET finished_at = '0000-01-01 00:00:00.000000' {SECOND}": "found '0000-01-01",
    f"UPDATE observations SET finished_at = 'now' {SECOND}": "found 'now', expected a time",
    f"UPDATE observations SET scheduled_at = x'00ff' {SECOND}": r"found b'\x00\xff', expected a time",
    f"UPDATE observations SET energy_joules = 'abc' {SECOND}": "column energy_joules: found 'abc'",
    f"UPDATE observations SET job_name = x'00ff' {SECOND}": "column job_name: found b",
    f"UPDATE late_usages SET energy_joules = 'abc' {SECOND}": "column energy_joules: found 'abc'",
    f"UPDATE decisions SET body = x'00' {SECOND}": "inputs of a decision that cannot be read",
    f"UPDATE decisions SET job_name = x'00' {SECOND}": "table decisions: a row",
    f"UPDATE objects SET body = '[]' {ATTEMPT}": "table objects: TrainingRecurrence local/tiny-00001",
    f"UPDATE objects SET body = '[]' {JOB}": "table objects: RecurringTrainingJob local/tiny",
    f"UPDATE objects SET body = '{{{SECRET}' || char(27) {JOB}": "found invalid JSON",
    f"UPDATE objects SET body = replace(hex(zeroblob(50000)), '00', '[') {JOB}": "found",
    f'UPDATE objects SET body = \'{{"spec": "{SECRET}"}}\' {JOB}': "RecurringTrainingJob local/tiny",
    f"UPDATE attempt_progress SET body = '{SECRET}'": "table attempt_progress: the progress of local/tiny",
}


@dataclass
class Output:
    """What a command wrote."""

    code: int
    text: str
    error: str


@dataclass
class Attacked:
    """A copy of the output folder of a run."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def database(self) -> Path:
        return self.folder / "wattloop.db"

    def execute(self, statements: str) -> None:
        connection = sqlite3.connect(self.database)
        connection.executescript(statements)
        connection.close()

    def write(self, content: bytes) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{self.database}{suffix}").unlink(missing_ok=True)
        self.database.write_bytes(content)

    def outputs(self) -> list[Output]:
        """What each command that reads a database writes of it; `wattloop plot` reads as `wattloop history` does."""
        database, month = str(self.database), time.strftime("%Y-%m", time.gmtime())
        commands = [
            ["history", str(self.folder)],
            *(["history", "--database", database, *rest] for rest in (["--jobs"], ["--gpus"], ["--month", month])),
            ["replay", database, "--format", "json"],
        ]
        return [self._output(command) for command in commands]

    def _output(self, command: list[str]) -> Output:
        code = main(command)
        written = self.capsys.readouterr()
        return Output(code, written.out, written.err)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run of three recurrences, the second of which has a late usage."""
    job = LocalJob(tmp_path_factory.mktemp("run"))
    job.job()
    assert job.run("--recurrences", "3") == 0
    connection = sqlite3.connect(job.output / "wattloop.db")
    connection.execute(
        "INSERT INTO late_usages SELECT job_uid, recurrence, attempt, energy_joules, time_seconds FROM observations "
        "WHERE recurrence = 1"
    )
    connection.commit()
    connection.close()
    return job.output


@pytest.fixture
def attacked(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Attacked:
    copy = tmp_path / "output"
    shutil.copytree(finished, copy)
    capsys.readouterr()
    return Attacked(copy, capsys)


@pytest.mark.parametrize("statements", REFUSED)
def test_a_file_that_is_not_as_wattloop_makes_it_is_refused_at_once(attacked: Attacked, statements: str) -> None:
    attacked.execute(statements)
    begin = time.process_time()
    for each in attacked.outputs():
        assert each.code in (1, 2)
        assert REFUSED[statements] in each.error
        assert len(each.error) < 1_000
    assert time.process_time() - begin < SECONDS


@pytest.mark.parametrize("statements", UNREADABLE)
def test_a_row_that_cannot_be_read_is_named_and_the_rest_is_shown(attacked: Attacked, statements: str) -> None:
    attacked.execute(statements)
    found = attacked.outputs()
    named = [each for each in found if "the row is left out" in each.error]
    for each in found:
        assert each.code == (1 if each in named else 0)
        assert SECRET not in each.text + each.error
        assert "\x1b" not in each.text + each.error
        assert each not in named or "what is shown is a part" in each.error
    with open_store(attacked.database, create=False) as store, serving(store) as url:
        query = {"namespace": "local", "name": "tiny"}
        answers = [CLIENT.get(f"{url}{path}", params=query if path in QUERIED else None) for path in PAGES]
        assert {answer.status_code for answer in answers} == {200}
        assert not any(SECRET in answer.text for answer in answers)
        left_out = CLIENT.get(f"{url}/api/jobs").json()["unreadable_rows"]
        # It is shown on every page, which has no decisions.
        assert ("Left out, as it cannot be read" in CLIENT.get(url).text) == bool(left_out)
        assert bool(left_out) == ("decisions" not in statements)
    assert any(UNREADABLE[statements] in each for each in (*(each.error for each in named), *left_out))


@pytest.mark.parametrize("seed", exhaustive_after(range(60), usual=2))
def test_random_damage_is_found_or_changes_nothing(attacked: Attacked, seed: int) -> None:
    expected = attacked.outputs()
    content, random_ = attacked.database.read_bytes(), random.Random(seed)
    for _ in range(10):
        damaged, begin = bytearray(content), random_.randrange(len(content))
        match random_.randrange(3):
            case 0:
                damaged[begin] ^= 1 << random_.randrange(8)
            case 1:
                damaged[begin] = random_.randrange(256)
            case _:
                end = min(begin + random_.choice((4, 512, 4096)), len(content))
                damaged[begin:end] = bytes(end - begin)
        attacked.write(bytes(damaged))
        for found, before in zip(attacked.outputs(), expected, strict=True):
            assert found == before or (found.code in (1, 2) and str(attacked.database) in found.error)
