"""The store: opens and migrates a database, and gives access to its tables."""

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import func, select

from wattloop.errors import OperationError, UsageError
from wattloop.files.atomic_write import PRIVATE_MODE
from wattloop.files.reading import special_file_kind
from wattloop_operator.store.address import database_url, display_name
from wattloop_operator.store.attempt_progress import AttemptProgress
from wattloop_operator.store.database import Database
from wattloop_operator.store.objects import Objects
from wattloop_operator.store.observation_store import Decisions, LateUsages, Observations
from wattloop_operator.store.pipeline_store import Pipelines
from wattloop_operator.store.pod_energies import PodEnergies
from wattloop_operator.store.profile_store import Profiles
from wattloop_operator.store.schema import check_file, migrate, read_marker
from wattloop_operator.store.tables import (
    ATTEMPT_PROGRESS,
    LATE_USAGES,
    MEASUREMENTS,
    OBJECT_VERSION,
    OBSERVATIONS,
    PROFILES,
)


class Store:
    """An open store. Thread-safe; every write is durable when it returns.

    Every method, also of its parts, raises `OperationError` if the database fails. Then nothing is written, and the
    call may be repeated.

    Attributes:
        name: The database's URL without its password, for messages.
        observations: The result and the cost of every attempt.
        late_usages: Energy and time that agents reported after an attempt's outcome.
        decisions: Each decision with what it was made from.
        profiles: Energy and time at each power limit.
        pod_energies: The energy of pods as reported by node agents.
        attempt_progress: What attempts have reported, and how they are decided to end.
        pipelines: Ranks, profiles and frontiers of pipeline-parallel attempts.
        objects: The objects of the local mode.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.name = database.name
        self.observations = Observations(database)
        self.late_usages = LateUsages(database)
        self.decisions = Decisions(database)
        self.profiles = Profiles(database)
        self.pod_energies = PodEnergies(database)
        self.attempt_progress = AttemptProgress(database)
        self.pipelines = Pipelines(database)
        self.objects = Objects(database)

    @property
    def unreadable_rows(self) -> tuple[str, ...]:
        """The rows that were left out so far, see `Database`; empty unless the store was opened to show it."""
        return self._database.unreadable_rows

    def check(self) -> None:
        """Read one row, to see whether the database can be used now."""
        with self._database.reading("use the database") as on:
            read_marker(on)

    def version(self) -> str:
        """A text that changes when an object, the progress of an attempt or an observation is written."""
        with self._database.reading("look for changes") as on:
            objects = on.execute(select(OBJECT_VERSION.c.resource_version)).scalar_one()
            observations = on.execute(select(func.count()).select_from(OBSERVATIONS)).scalar_one()
            # The database of a cluster has no objects, so nothing that is shown of it depends on progress.
            reported = on.execute(select(func.max(ATTEMPT_PROGRESS.c.updated_at))).scalar_one() if objects else None
        return f"{objects}-{observations}" + (f"-{reported}" if reported else "")

    def version_of_job(self, job_uid: str) -> str:
        """A text that changes when the records of a job do: observations are only added, the others also replaced.

        It has counts and sums, which indices give without the rows.
        """
        newest = select(OBSERVATIONS.c.recurrence, OBSERVATIONS.c.attempt).where(OBSERVATIONS.c.job_uid == job_uid)
        newest = newest.order_by(OBSERVATIONS.c.recurrence.desc(), OBSERVATIONS.c.attempt.desc()).limit(1)
        observations = select(func.count()).where(OBSERVATIONS.c.job_uid == job_uid)
        late = select(func.count(), func.sum(LATE_USAGES.c.energy_joules)).where(LATE_USAGES.c.job_uid == job_uid)
        measured = select(func.count(), func.sum(MEASUREMENTS.c.energy_joules)).join_from(MEASUREMENTS, PROFILES)
        queries = (newest, observations, late, measured.where(PROFILES.c.job_uid == job_uid))
        with self._database.reading(f"look for changes of job {job_uid}") as on:
            return "-".join(str(each) for query in queries for each in on.execute(query).first() or ())

    def close(self) -> None:
        """Close all connections; the store must not be used afterwards."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(url: str | Path, *, create: bool = True) -> Store:
    """Open a database and migrate it to this version's schema.

    A SQLite file is checked before: others may have written it, or a disk may have damaged it.

    Args:
        url: ``sqlite:///PATH``, ``postgresql://USER:PASSWORD@HOST/DATABASE``, or the `Path` of a
            SQLite file.
        create: Whether to create the tables in a missing file or an empty database; False raises an
            error for it, for commands that only show: a row that cannot be read is left out, see
            `Store.unreadable_rows`.

    Raises:
        UsageError: The URL is invalid, or is not of a supported database.
        OperationError: The database cannot be reached, read or written, belongs to another program,
            has a newer schema that this version cannot use, or is damaged.
        InputError: It is not known what wrote it.
    """
    address = database_url(url)
    if address.drivername.startswith("sqlite") and (kind := special_file_kind(str(address.database))):
        raise UsageError(f"{display_name(address)}: found {kind}, expected a SQLite file")
    database = Database(address, leaves_out=not create)
    if database.is_sqlite and not create and not Path(str(address.database)).exists():
        raise OperationError(f"{database.name}: the file does not exist; name a database that Wattloop has used")
    try:
        if database.is_sqlite:
            if create:
                _make_private(Path(str(address.database)))
            check_file(database)
        migrate(database, create=create)
    except BaseException:
        database.close()
        raise
    return Store(database)


def _make_private(path: Path) -> None:
    """Create a file that only its owner can read; SQLite gives its logs the same permissions."""
    # SQLite says why a file cannot be opened.
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_MODE))
