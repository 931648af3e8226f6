"""The databases of every test of the store: a SQLite file and a real PostgreSQL server."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from support.databases.postgresql_server import (
    PostgreSqlMissingError,
    PostgreSqlServer,
    postgresql_programs,
    running_postgresql,
)
from support.databases.sample_record import RECORD
from wattloop_operator.store import ObservationRecord, Store, open_store
from wattloop_operator.store.tables import METADATA


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSqlServer]:
    """A real server, started once per test process."""
    try:
        programs = postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; PostgreSQL is not tested")
    with running_postgresql(programs) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the tables, of which tests get copies: to migrate takes longer than most of them."""
    path = tmp_path_factory.mktemp("migrated") / "wattloop.db"
    open_store(path).close()
    return path


@pytest.fixture(scope="session")
def migrated_database(postgresql_server: PostgreSqlServer) -> str:
    """The URL of a database of the server with the tables, which is emptied for each test: a copy costs 0.1 s."""
    url = postgresql_server.new_database()
    open_store(url).close()
    return url


def emptied(url: str) -> str:
    with psycopg.connect(url) as connection:
        for table in reversed(METADATA.sorted_tables):
            # The tables of one row have it from their creation.
            if "only_row" not in table.columns:
                connection.execute(f"DELETE FROM {table.name}".encode())
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database; with the tables for a test that gets an open store."""
    migrated = "store" in request.fixturenames
    if request.param == "sqlite":
        path = tmp_path / "wattloop.db"
        if migrated:
            shutil.copyfile(request.getfixturevalue("migrated_file"), path)
        return f"sqlite:///{path}"
    if migrated:
        return emptied(request.getfixturevalue("migrated_database"))
    server: PostgreSqlServer = request.getfixturevalue("postgresql_server")
    return server.new_database()


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with open_store(database_url) as opened:
        yield opened


@pytest.fixture
def observation() -> Callable[..., ObservationRecord]:
    """Makes a valid record with the changes of the test."""

    def make(**changes: object) -> ObservationRecord:
        return dataclasses.replace(RECORD, **changes)  # type: ignore[arg-type]

    return make
