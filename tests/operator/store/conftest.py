"""The databases of every test of the store: a SQLite file and a real PostgreSQL server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.databases.postgresql_server import (
    PostgreSqlMissingError,
    PostgreSqlServer,
    postgresql_programs,
    running_postgresql,
)
from support.databases.sample_record import RECORD
from wattloop_operator.store import ObservationRecord, Store, open_store


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSqlServer]:
    """A real server, started once per test process."""
    try:
        programs = postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; PostgreSQL is not tested")
    with running_postgresql(programs) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'wattloop.db'}"
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
