"""Fixtures that several folders of the operator's tests share."""

import dataclasses
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from support.databases.postgresql_server import PostgreSqlMissingError, PostgreSqlPrograms, postgresql_programs
from support.databases.sample_record import RECORD
from support.local_runs.local_runs import LocalJob
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.store import ObservationRecord, PowerMeasurement, PowerProfileKey, PowerProfileRecord


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Restores the logging configuration after a test that sets it up as for a process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in list(logging.root.manager.loggerDict)}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    logging.captureWarnings(capture=False)


@pytest.fixture(scope="session")
def programs() -> PostgreSqlPrograms:
    """PostgreSQL's programs; without them the test is skipped."""
    try:
        return postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; no server was killed")


@pytest.fixture
def local_job(tmp_path: Path) -> LocalJob:
    """A job for local runs."""
    job = LocalJob(tmp_path / "run")
    job.folder.mkdir()
    return job


@pytest.fixture
def record() -> Callable[..., ObservationRecord]:
    """Makes a record; `record(3, 1, batch_size=64)` is attempt 1 of recurrence 3."""

    def make(recurrence: int = 0, attempt: int = 0, **changes: object) -> ObservationRecord:
        return dataclasses.replace(
            RECORD,
            recurrence=recurrence,
            attempt=attempt,
            recurrence_name=f"digits-{recurrence}-{attempt}",
            finished_at=RECORD.scheduled_at + timedelta(hours=recurrence, minutes=attempt + 1),
            **changes,  # type: ignore[arg-type]
        )

    return make


@pytest.fixture
def profile() -> Callable[..., PowerProfileRecord]:
    """Makes a profile of a batch size from (limit, energy of an epoch, time of an epoch)."""

    def make(batch_size: int, *points: tuple[float, float, float], gpu_model: str = "NVIDIA A40") -> PowerProfileRecord:
        # Measured over a quarter of an epoch, as a trainer does.
        measured = tuple(PowerMeasurement(limit, energy / 4, time / 4, 0.25) for limit, energy, time in points)
        return PowerProfileRecord(PowerProfileKey(RECORD.job_uid, batch_size, gpu_model, 1), measured)

    return make


@pytest.fixture
def history() -> Callable[..., JobHistory]:
    """Makes a history of records, compared with batch size 32 at η = ½."""

    def make(*records: ObservationRecord, **changes: object) -> JobHistory:
        return dataclasses.replace(JobHistory("team", "digits", 0.5, 32, records), **changes)  # type: ignore[arg-type]

    return make
