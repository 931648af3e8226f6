"""Energy readings: the cumulative counter of each GPU during an attempt, as the agents sent it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from sqlalchemy import ColumnElement, FromClause, and_, delete, exists, select

from wattloop_operator.store.database import Database
from wattloop_operator.store.records import EnergyReading
from wattloop_operator.store.tables import READINGS

COLUMNS = [READINGS.c[field.name] for field in fields(EnergyReading)]
COUNTER = ("job_uid", "recurrence", "attempt", "gpu_uuid")
KEY = (*COUNTER, "time_seconds")


class Readings:
    """The energy readings in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, readings: Iterable[EnergyReading]) -> int:
        """Keep readings, durably when this returns; one that is there already (same GPU, same time) is passed over.

        Returns:
            How many were new.

        Raises:
            CannotError: The database failed; none of them is kept, and all may be sent again.
        """
        # Once each, in one order: two writers of overlapping readings then never wait for each other in a circle.
        rows = [
            vars(reading) for reading in sorted({_key(reading): reading for reading in readings}.values(), key=_key)
        ]
        if not rows:
            return 0
        statement = self._database.insert(READINGS).on_conflict_do_nothing(index_elements=KEY)
        with self._database.writing("record energy readings") as on:
            return len(on.execute(statement.returning(READINGS.c.attempt), rows).all())

    def of_attempt(self, job_uid: str, recurrence: int, attempt: int) -> tuple[EnergyReading, ...]:
        """All readings of one attempt, ordered by GPU and time."""
        wanted = (
            select(*COLUMNS)
            .where(READINGS.c.job_uid == job_uid, READINGS.c.recurrence == recurrence, READINGS.c.attempt == attempt)
            .order_by(READINGS.c.gpu_uuid, READINGS.c.time_seconds)
        )
        with self._database.reading(f"read the energy readings of job {job_uid}, recurrence {recurrence}") as on:
            return tuple(EnergyReading(*row) for row in on.execute(wanted).all())

    def thin_out(self, job_uid: str, recurrence: int, attempt: int) -> int:
        """Delete an attempt's readings but the first and the last of each counter, which its energy follows from.

        Returns:
            How many were deleted.

        Raises:
            CannotError: The database failed; it may be asked again.
        """
        earlier, later = READINGS.alias("earlier"), READINGS.alias("later")

        def another(side: FromClause, is_beyond: ColumnElement[bool]) -> ColumnElement[bool]:
            return exists().where(and_(*(side.c[name] == READINGS.c[name] for name in COUNTER)), is_beyond)

        between = delete(READINGS).where(
            READINGS.c.job_uid == job_uid,
            READINGS.c.recurrence == recurrence,
            READINGS.c.attempt == attempt,
            another(earlier, earlier.c.time_seconds < READINGS.c.time_seconds),
            another(later, later.c.time_seconds > READINGS.c.time_seconds),
        )
        with self._database.writing(f"thin out the energy readings of job {job_uid}, recurrence {recurrence}") as on:
            return on.execute(between).rowcount


def _key(reading: EnergyReading) -> tuple[object, ...]:
    return tuple(getattr(reading, name) for name in KEY)
