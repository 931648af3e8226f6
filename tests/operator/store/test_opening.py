"""Opening a database: identification, migration, rollback, concurrent starts, errors."""

import contextlib
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, text

from wattloop.errors import OperationError, UsageError, WattloopError
from wattloop_operator.store import DatabaseUnavailableError, LateUsage, ObservationRecord, Store, open_store
from wattloop_operator.store.address import database_url as address
from wattloop_operator.store.address import display_name
from wattloop_operator.store.schema import MIGRATIONS, Marker, read_marker
from wattloop_operator.store.tables import OLDEST_SCHEMA_VERSION, SCHEMA_VERSION


def execute(url: str, *statements: str) -> None:
    engine = create_engine(address(url))
    try:
        with engine.begin() as on:
            for statement in statements:
                on.execute(text(statement))
    finally:
        engine.dispose()


def marker(url: str) -> Marker | None:
    engine = create_engine(address(url))
    try:
        with engine.begin() as on:
            return read_marker(on)
    finally:
        engine.dispose()


def table_names(url: str) -> list[str]:
    engine = create_engine(address(url))
    try:
        with engine.connect() as on:
            return inspect(on).get_table_names()
    finally:
        engine.dispose()


def test_the_marker_names_the_product_the_schema_and_the_version(database_url: str) -> None:
    open_store(database_url).close()
    found = marker(database_url)
    assert found == Marker("wattloop", SCHEMA_VERSION, found.compatible_from, version("wattloop"))
    assert 1 <= found.compatible_from <= SCHEMA_VERSION


def test_data_persists_when_the_store_is_opened_again(database_url: str) -> None:
    with open_store(database_url) as store:
        store.objects.create("FrequencyPlan", "team", "plan", {"kept": True})
    with open_store(database_url, create=False) as store:
        assert [one.body for one in store.objects.list("FrequencyPlan")] == [{"kept": True}]


def test_of_concurrent_threads_one_creates_the_schema(database_url: str) -> None:
    def open_and_write(number: int) -> str:
        with open_store(database_url) as store:
            return store.objects.create("FrequencyPlan", "team", f"plan-{number}", {}).name

    with ThreadPoolExecutor(6) as threads:
        assert len(set(threads.map(open_and_write, range(6)))) == 6
    with open_store(database_url) as store:
        assert [one.resource_version for one in store.objects.list("FrequencyPlan")] != []
        assert len(store.objects.list("FrequencyPlan")) == 6


OPENS_ON_REQUEST = """
import sys
from wattloop_operator.store import open_store
import wattloop_operator.store.migrations.versions.schema_0012_first
import wattloop_operator.store.migrations.versions.schema_0013_probes
import wattloop_operator.store.migrations.versions.schema_0014_measured_and_resumed
print("ready", flush=True)
sys.stdin.readline()
with open_store(sys.argv[1]) as store:
    store.objects.create("FrequencyPlan", "team", sys.argv[2], {})
"""


# PostgreSQL serves each connection by a process of its own, as of threads; of SQLite, processes lock the file.
@pytest.mark.parametrize(
    ("database_url", "count"),
    [
        ("sqlite", 2),
        pytest.param("sqlite", 4, marks=pytest.mark.exhaustive),
        pytest.param("postgresql", 4, marks=[pytest.mark.postgres, pytest.mark.exhaustive]),
    ],
    indirect=["database_url"],
)
def test_of_concurrent_processes_one_creates_the_schema(database_url: str, count: int) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", OPENS_ON_REQUEST, database_url, f"plan-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("open\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * count
    with open_store(database_url) as store:
        assert [one.name for one in store.objects.list("FrequencyPlan")] == [
            f"plan-{number}" for number in range(count)
        ]


def test_a_database_of_another_program_is_rejected_and_unchanged(database_url: str) -> None:
    execute(database_url, "CREATE TABLE invoices (number integer)", "INSERT INTO invoices VALUES (7)")
    with pytest.raises(OperationError, match=r"the database belongs to another program, which has the tables invoices"):
        open_store(database_url)
    assert table_names(database_url) == ["invoices"]


def test_a_marker_of_another_product_is_rejected(database_url: str) -> None:
    open_store(database_url).close()
    execute(database_url, "UPDATE wattloop_database SET product = 'ohmloop'")
    with pytest.raises(OperationError, match="the database belongs to 'ohmloop'"):
        open_store(database_url)


NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "{next:04d}"
down_revision = "{now:04d}"
{declaration}


def upgrade():
    op.{change}
"""


@contextlib.contextmanager
def newer_wattloop(folder: Path, declaration: str, change: str) -> Iterator[None]:
    """Make this process a Wattloop with one more migration during the block."""
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    script = NEXT.format(next=SCHEMA_VERSION + 1, now=SCHEMA_VERSION, declaration=declaration, change=change)
    (folder / "versions" / f"schema_{SCHEMA_VERSION + 1:04d}_next.py").write_text(script)
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr("wattloop_operator.store.schema.MIGRATIONS", folder)
        newer.setattr("wattloop_operator.store.schema.SCHEMA_VERSION", SCHEMA_VERSION + 1)
        newer.setattr("wattloop_operator.store.schema.version", lambda _: "9.1.0")
        yield


def test_an_upgrade_changes_the_schema_and_keeps_the_rows(
    database_url: str, tmp_path: Path, observation: Callable[..., ObservationRecord]
) -> None:
    with open_store(database_url) as store:
        store.observations.record(observation())
    with (
        newer_wattloop(tmp_path / "newer", "additive = False", 'drop_table("late_usages")'),
        open_store(database_url) as store,
    ):
        assert store.observations.of_job(observation().job_uid) == (observation(),)
    assert marker(database_url) == Marker("wattloop", SCHEMA_VERSION + 1, SCHEMA_VERSION + 1, "9.1.0")
    assert "late_usages" not in table_names(database_url)


def test_a_database_of_a_development_version_is_rejected_and_unchanged(
    database_url: str, observation: Callable[..., ObservationRecord]
) -> None:
    with open_store(database_url) as store:
        store.observations.record(observation())
    execute(database_url, f"UPDATE wattloop_database SET schema_version = {OLDEST_SCHEMA_VERSION - 1}")
    for create in (True, False):
        with pytest.raises(OperationError) as raised:
            open_store(database_url, create=create)
        assert str(raised.value) == (
            f"{display_name(address(database_url))}: a development version of Wattloop created its schema "
            f"{OLDEST_SCHEMA_VERSION - 1}, and this version upgrades schema {OLDEST_SCHEMA_VERSION} or newer; the "
            "database is unchanged: `wattloop history` of the version that created it prints its records; name an "
            "empty database, or move this one away"
        )
    found = marker(database_url)
    assert found.schema_version == OLDEST_SCHEMA_VERSION - 1
    execute(database_url, f"UPDATE wattloop_database SET schema_version = {SCHEMA_VERSION}")
    with open_store(database_url) as store:
        assert store.observations.of_job(observation().job_uid) == (observation(),)


@pytest.mark.parametrize(
    "change",
    [
        'create_table("novelties", sa.Column("name", sa.Text, primary_key=True))',
        'add_column("late_usages", sa.Column("novelty", sa.Double))',
    ],
)
def test_after_a_rollback_past_an_additive_migration_the_store_works(
    change: str, database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late_usage = LateUsage("uid", 1, 0, 5.0, 6.0)
    with open_store(database_url) as store:
        store.objects.create("FrequencyPlan", "team", "before", {})
    with newer_wattloop(tmp_path / "newer", "additive = True", change):
        open_store(database_url).close()
    with open_store(database_url) as store:
        store.objects.create("FrequencyPlan", "team", "after", {})
        store.late_usages.record(late_usage)
        assert [one.name for one in store.objects.list("FrequencyPlan")] == ["after", "before"]
        assert store.late_usages.of_job("uid") == (late_usage,)
    (line,) = [record.getMessage() for record in caplog.records if "newer schema" in record.getMessage()]
    assert f"Wattloop 9.1.0 created its schema {SCHEMA_VERSION + 1}, and this is Wattloop {version('wattloop')}" in line
    # The marker does not change, so the newer version has nothing to migrate later.
    found = marker(database_url)
    assert (found.schema_version, found.product_version) == (SCHEMA_VERSION + 1, "9.1.0")


@pytest.mark.parametrize("declaration", ["additive = False", ""])
def test_a_rollback_past_another_migration_is_rejected_with_the_version_to_use(
    declaration: str, database_url: str, tmp_path: Path
) -> None:
    open_store(database_url).close()
    with newer_wattloop(tmp_path / "newer", declaration, 'drop_table("late_usages")'):
        open_store(database_url).close()
    needed = rf"schema {SCHEMA_VERSION + 1}, which needs schema {SCHEMA_VERSION + 1} or newer"
    with pytest.raises(OperationError, match=rf"{needed}.*use Wattloop 9\.1\.0 or newer"):
        open_store(database_url)


def test_a_command_that_only_reads_creates_no_database(database_url: str, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"name a database that Wattloop has used|the database is empty"):
        open_store(database_url, create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_migration_leaves_the_database_unchanged(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # This table conflicts with one of the last, when half of the migration is done.
    monkeypatch.setattr("wattloop_operator.store.schema._own_marker", lambda *_: None)
    execute(database_url, "CREATE TABLE objects (number integer)")
    with pytest.raises(OperationError, match=r"cannot migrate the database to this version's schema.*already exists"):
        open_store(database_url)
    assert table_names(database_url) == ["objects"]


def test_a_path_of_any_name_is_a_sqlite_file(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%20.db"
    open_store(path).close()
    with open_store(path, create=False) as store:
        assert store.observations.jobs() == ()
    assert path.exists()


def test_a_sqlite_file_has_a_write_ahead_log(tmp_path: Path) -> None:
    open_store(tmp_path / "wattloop.db").close()
    connection = sqlite3.connect(tmp_path / "wattloop.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_measurements_without_a_profile_are_rejected(store: Store, database_url: str) -> None:
    engine = store._database._engine
    with pytest.raises(Exception, match=r"(?i)foreign key"), engine.begin() as on:
        on.execute(text("INSERT INTO power_measurements VALUES (77, 100, 1, 1, 1)"))


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        (
            "user:secret@host/database",
            "the database's URL is invalid; expected a file, a folder that holds wattloop.db",
        ),
        ("", "the database's URL is invalid"),
        ("postgresql://user:se/cret@@host:port/x", "the database's URL is invalid"),
        ("mysql://user:secret@host/database", "of the type 'mysql' are not supported"),
        ("postgresql+asyncpg://user:secret@host/database", "of the type 'postgresql\\+asyncpg' are not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///wattloop.db?timeout=abc", "found options, expected none after the file name"),
    ],
)
def test_an_invalid_or_unsupported_url_is_a_usage_error(url: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as raised:
        open_store(url)
    assert "secret" not in str(raised.value)
    assert "cret@" not in str(raised.value)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("database", "user", "password", "complaint"),
    [
        ("postgres", "wattloop", "wrong-secret", "check the user and the password in the URL"),
        ("nowhere", "wattloop", None, 'database "nowhere" does not exist; create it'),
    ],
)
def test_the_servers_errors_are_reported_without_the_password(
    postgresql_server: Any, database: str, user: str, password: str | None, complaint: str
) -> None:
    credentials = {"user": user} | ({} if password is None else {"password": password})
    url = postgresql_server.url(database, **credentials)
    with pytest.raises(OperationError, match=complaint) as raised:
        open_store(url)
    assert f"postgresql://{user}:***@/{database}" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("127.0.0.1:1/database?sslmode=required", 'invalid sslmode value: "required"; correct this part of the URL'),
        ("127.0.0.1:99999/database", 'invalid port number: "99999"; correct this part of the URL'),
        ("127.0.0.1:1/database?timeout=3", 'invalid connection option "timeout"; correct this part of the URL'),
    ],
)
def test_a_wrong_option_is_no_server_that_is_away(place: str, problem: str) -> None:
    with pytest.raises(OperationError, match=re.escape(problem)) as raised:
        open_store(f"postgresql://user:secret-word@{place}")
    assert not isinstance(raised.value, DatabaseUnavailableError)
    assert "secret" not in str(raised.value)


def test_a_server_without_tls_is_no_server_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse_tls() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(b"N")

        refusing = threading.Thread(target=refuse_tls)
        refusing.start()
        url = f"postgresql://user@127.0.0.1:{server.getsockname()[1]}/database?sslmode=require"
        with pytest.raises(OperationError, match="set sslmode in the URL to what the server supports") as raised:
            open_store(url)
        refusing.join()
    assert not isinstance(raised.value, DatabaseUnavailableError)


@pytest.mark.parametrize("query", ["", "?sslpassword=secret-secret", "?password=secret-secret"])
def test_an_unreachable_server_is_reported_without_the_password(tmp_path: Path, query: str) -> None:
    url = f"postgresql://user:secret-word@127.0.0.1:1/database{query}"
    with pytest.raises(OperationError, match="check that the server runs") as raised:
        open_store(url)
    assert "127.0.0.1:1/database: cannot identify the database" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_that_is_not_a_database_is_rejected_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to be looked at as one\n" * 20)
    before = path.read_bytes()
    with pytest.raises(OperationError, match="name another file: this one is not a SQLite database"):
        open_store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", ["missing/wattloop.db", "."])
def test_a_missing_folder_is_reported(tmp_path: Path, place: str) -> None:
    with pytest.raises(OperationError, match="name a file in an existing, writable folder"):
        open_store(tmp_path / place)


def test_errors_contain_no_text_of_sqlalchemy(tmp_path: Path) -> None:
    with pytest.raises(WattloopError) as raised:
        open_store(tmp_path)
    assert "Background on this error" not in str(raised.value)
