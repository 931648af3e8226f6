"""Recorded data survives a killed process, a full disk and a lost server, which are reported."""

import base64
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from support.agents.agent_fixture import until
from support.databases.postgresql_server import (
    PostgreSqlMissingError,
    postgresql_folder,
    postgresql_programs,
    serving_postgresql,
)
from support.test_sets.parameters import exhaustive_after
from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.store import ObservationRecord, Store, open_store

Make = Callable[..., ObservationRecord]

RECORDS_FOREVER = """
import itertools, sys
from wattloop.errors import OperationError
from wattloop_operator.store import LateUsage, open_store
with open_store(sys.argv[1]) as store:
    for number in itertools.count():
        try:
            store.late_usages.record(LateUsage("job", number, 0, 1.0, 1.0))
        except OperationError as error:
            print(error, flush=True)
            break
        print(number, flush=True)
"""
STOPS_INSIDE_A_WRITE = """
import sys
from wattloop_operator.store.address import database_url
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import LATE_USAGES
with Database(database_url(sys.argv[1])).writing("stop inside a write") as on:
    on.execute(LATE_USAGES.insert(), [
        dict(job_uid="job", recurrence=number, attempt=0, energy_joules=1.0, time_seconds=1.0)
        for number in range(2000)
    ])
    print("inside", flush=True)
    sys.stdin.readline()
"""


# test_killed_postgresql.py has the harder case of PostgreSQL, whose server is killed.
SQLITE_FIRST = pytest.mark.parametrize(
    "database_url",
    ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive])],
    indirect=True,
)


def started(program: str, url: str, limit_bytes: int | None = None) -> subprocess.Popen[str]:
    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.Popen(
        [sys.executable, "-c", program, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=limit,  # noqa: PLW1509
    )


@SQLITE_FIRST
def test_a_killed_process_loses_nothing_that_it_recorded(database_url: str) -> None:
    open_store(database_url).close()
    with started(RECORDS_FOREVER, database_url) as process:
        output = [process.stdout.readline() for _ in range(25)]
        process.send_signal(signal.SIGKILL)
        output += process.stdout.readlines()
    recorded = [int(line) for line in output if line.endswith("\n")]
    with open_store(database_url) as store:
        stored = [late_usage.recurrence for late_usage in store.late_usages.of_job("job")]
    assert stored[: len(recorded)] == recorded
    # The process may have stored one more row than it printed.
    assert len(stored) - len(recorded) in {0, 1}


@SQLITE_FIRST
def test_a_process_killed_inside_a_write_leaves_no_rows_and_no_lock(database_url: str) -> None:
    open_store(database_url).close()
    with started(STOPS_INSIDE_A_WRITE, database_url) as process:
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGKILL)
    with open_store(database_url) as store:
        assert store.late_usages.of_job("job") == ()
        store.objects.create("FrequencyPlan", "team", "plan", {})
    if database_url.startswith("sqlite"):
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


def test_a_full_disk_is_reported_and_keeps_existing_data(tmp_path: Path) -> None:
    path = tmp_path / "wattloop.db"
    url = f"sqlite:///{path}"
    open_store(url).close()
    # The kernel limits the file's size as a full disk would.
    with started(RECORDS_FOREVER, url, limit_bytes=path.stat().st_size + 64 * 1024) as process:
        *recorded, complaint = process.stdout.read().splitlines()
    assert process.returncode == 0
    assert "cannot record the late usage of job job" in complaint
    assert re.search("free space|limit on file sizes", complaint)
    assert recorded
    with open_store(url) as store:
        stored = [late_usage.recurrence for late_usage in store.late_usages.of_job("job")]
        assert stored == [int(line) for line in recorded]
        store.objects.create("FrequencyPlan", "team", "plan", {})


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 11 MiB; an empty database takes 8 MiB."""
    folder = Path(tempfile.mkdtemp(prefix="wattloop-small-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=11m,mode=0777", "wattloop", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip("this user may not mount a small file system, so a full disk is not tested on PostgreSQL")
    yield folder
    subprocess.run(["umount", folder], check=True)
    folder.rmdir()


@pytest.mark.postgres
def test_a_full_disk_of_the_server_is_reported_and_keeps_existing_data(
    postgresql_server: Any, small_disk: Path
) -> None:
    noise = random.Random(1)
    with postgresql_server.database_on(small_disk) as url, open_store(url) as store:
        created: list[str] = []

        def create_more_than_fits() -> None:
            for number in range(32):
                # Incompressible.
                body = {"noise": base64.b85encode(noise.randbytes(2**20)).decode()}
                created.append(store.objects.create("FrequencyPlan", "team", f"plan-{number:02}", body).name)

        with pytest.raises(OperationError, match=r"cannot create FrequencyPlan team/.*free space on the server's disk"):
            create_more_than_fits()
        assert created
        assert [one.name for one in store.objects.list("FrequencyPlan")] == created
        store.objects.delete("FrequencyPlan", "team", created[0])


@pytest.fixture
def folder_of_another_user() -> Iterator[Path]:
    # Not in pytest's folder, which other users cannot access.
    folder = Path(tempfile.mkdtemp(prefix="wattloop-read-only-"))
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


OPENS_AS_NOBODY = """
import os, pathlib, sys, tempfile
from wattloop.errors import OperationError
from wattloop_operator.store import LateUsage, open_store
# Imports everything before the change of user, who cannot read this user's folders.
with tempfile.TemporaryDirectory() as folder:
    open_store(pathlib.Path(folder) / "first.db").close()
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
try:
    with open_store(sys.argv[1]) as store:
        store.late_usages.record(LateUsage("job", 0, 0, 1.0, 1.0))
except OperationError as error:
    print(error)
"""


@pytest.mark.parametrize("exists", exhaustive_after([True, False]))
def test_a_read_only_folder_is_reported(folder_of_another_user: Path, exists: bool) -> None:
    path = folder_of_another_user / "wattloop.db"
    if exists:
        open_store(path).close()
        path.chmod(0o444)
    folder_of_another_user.chmod(0o555)
    with started(OPENS_AS_NOBODY, f"sqlite:///{path}") as process:
        complaint, _ = process.communicate()
    assert process.returncode == 0
    assert f"sqlite:///{path}: cannot " in complaint
    assert "writable" in complaint


def test_a_signal_interrupts_a_wait_for_the_lock(tmp_path: Path, observation: Make) -> None:
    with open_store(tmp_path / "wattloop.db") as store:
        other = sqlite3.connect(tmp_path / "wattloop.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with interruption.handled(), interruption.deferred():
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(interruption.Interrupted):
                store.observations.record(observation())
        other.close()
        assert store.observations.jobs() == ()


def test_a_locked_file_is_reported(tmp_path: Path, observation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattloop_operator.store.database.LOCK_WAIT_SECONDS", 0.01)
    with open_store(tmp_path / "wattloop.db") as store:
        other = sqlite3.connect(tmp_path / "wattloop.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            OperationError, match="observation of team/digits-0: database is locked; another process holds the lock"
        ):
            store.observations.record(observation())
        assert store.observations.jobs() == ()
        other.execute("ROLLBACK")
        other.close()
        assert store.observations.record(observation()) is True


def _end_connections(store: Store) -> None:
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"

    def number() -> int:
        with store._database.reading("count the other connections") as on:
            return int(on.execute(text(f"SELECT count(*) {others}")).scalar_one())

    with store._database.reading("end the other connections") as on:
        on.execute(text(f"SELECT pg_terminate_backend(pid) {others}"))
    # The server only signals their processes.
    until(lambda: number() == 0, "the other connections have ended")


@pytest.mark.postgres
def test_a_lost_connection_is_reported_and_the_next_write_reconnects(postgresql_server: Any, observation: Make) -> None:
    url = postgresql_server.new_database()
    with open_store(url) as store, open_store(url) as other:

        def lose_the_server_within_a_write() -> None:
            with store._database.writing("record twice") as on:
                on.execute(text("SELECT 1"))
                _end_connections(other)
                on.execute(text("SELECT 1"))

        complaint = r"cannot record twice: terminating connection.*check that the server runs"
        with pytest.raises(OperationError, match=complaint) as gone:
            lose_the_server_within_a_write()
        assert "secret" not in str(gone.value)
        assert store.observations.record(observation()) is True


@pytest.mark.postgres
def test_a_lost_connection_between_writes_is_replaced(postgresql_server: Any, observation: Make) -> None:
    url = postgresql_server.new_database()
    with open_store(url) as store, open_store(url) as other:
        store.observations.record(observation())
        _end_connections(other)
        assert store.observations.record(observation()) is False


@pytest.mark.postgres
def test_a_stopped_server_is_reported_and_used_again_once_it_is_started(observation: Make) -> None:
    try:
        programs = postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; no server was stopped")
    with postgresql_folder(programs) as folder:
        with serving_postgresql(programs, folder) as server:
            store = open_store(server.new_database())
            store.observations.record(observation())
        for _ in range(2):
            with pytest.raises(OperationError, match=r"cannot record the observation.*check that the server runs"):
                store.observations.record(observation(attempt=1))
        with serving_postgresql(programs, folder), store:
            assert store.observations.record(observation(attempt=1)) is True
            assert [each.attempt for each in store.observations.of_job(observation().job_uid)] == [0, 1]


@pytest.mark.postgres
def test_the_wait_for_an_unreachable_server_is_bounded(postgresql_server: Any) -> None:
    with open_store(postgresql_server.new_database()) as store, store._database.reading("ask libpq") as on:
        connection = on.connection.driver_connection
        known = connection.info.get_parameters()
    assert {name: known[name] for name in ("keepalives_idle", "keepalives_interval", "tcp_user_timeout")} == {
        "keepalives_idle": "30",
        "keepalives_interval": "5",
        "tcp_user_timeout": "30000",
    }


@pytest.mark.postgres
def test_a_read_only_database_is_reported(postgresql_server: Any, observation: Make) -> None:
    url = postgresql_server.new_database()
    open_store(url).close()
    with open_store(f"{url}&options=-cdefault_transaction_read_only%3Don") as store:
        assert store.observations.jobs() == ()
        with pytest.raises(OperationError, match="name the primary server"):
            store.observations.record(observation())
