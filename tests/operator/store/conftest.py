"""The two databases that every test of the store meets: a SQLite file and a real PostgreSQL server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postgresql_server import PostgreSqlMissingError, PostgreSqlServer, postgresql_programs, running_postgresql
from wattloop_operator.store import ObservationRecord, Store, open_store


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSqlServer]:
    """A real server, started once for each test process and stopped at its end."""
    try:
        programs = postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; nothing was tested on PostgreSQL")
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
    """Makes a record: sound by itself, with what the test wants different."""

    def make(**changes: object) -> ObservationRecord:
        return dataclasses.replace(_RECORD, **changes)  # type: ignore[arg-type]

    return make


_RECORD = ObservationRecord(
    job_uid="0c3b2d9e",
    namespace="team",
    job_name="digits",
    recurrence=0,
    attempt=0,
    recurrence_name="digits-0",
    batch_size=32,
    power_limit_watts=250.0,
    result="Reached",
    epochs=3.5,
    metric=0.97,
    energy_joules=12_345.678,
    time_seconds=61.5,
    max_power_watts=300.0,
    gpu_model="NVIDIA A40",
    gpu_count=1,
    epoch_energy_joules=3527.3,
    epoch_time_seconds=17.6,
    attribution="Exclusive",
    decision_kind="trial",
    reason="every batch size is tried once",
    scheduled_at=datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    finished_at=datetime(2026, 3, 29, 1, 31, 1, 500_123, tzinfo=UTC),
)
