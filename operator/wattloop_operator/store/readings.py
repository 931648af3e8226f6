"""Energy readings: the cumulative counter of each GPU during an attempt, as the agents sent it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from sqlalchemy import and_, delete, exists, select, tuple_

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

    def latest(self, job_uid: str, recurrence: int, attempt: int) -> dict[str, EnergyReading]:
        """The latest reading of each GPU of one attempt, by the GPU's uuid."""
        return {reading.gpu_uuid: reading for reading in self.of_attempt(job_uid, recurrence, attempt)}

    def thin_before(self, time_seconds: float, *, at_most: int = 10_000) -> int:
        """Delete readings older than this, but the first and the last of each counter, which its energy follows from.

        Args:
            time_seconds: Readings from before this moment (seconds since the epoch) may go.
            at_most: How many one call deletes at most, so that other writers wait but shortly; call it again while it
                returns this many.

        Returns:
            How many were deleted.
        """
        earlier, later = READINGS.alias("earlier"), READINGS.alias("later")
        inner = (
            select(*(READINGS.c[name] for name in KEY))
            .where(
                READINGS.c.time_seconds < time_seconds,
                *(
                    exists().where(
                        and_(*(other.c[name] == READINGS.c[name] for name in COUNTER)),
                        other.c.time_seconds < READINGS.c.time_seconds
                        if other is earlier
                        else other.c.time_seconds > READINGS.c.time_seconds,
                    )
                    for other in (earlier, later)
                ),
            )
            .limit(at_most)
        )
        with self._database.writing("thin out energy readings") as on:
            return on.execute(delete(READINGS).where(tuple_(*(READINGS.c[name] for name in KEY)).in_(inner))).rowcount


def _key(reading: EnergyReading) -> tuple[object, ...]:
    return tuple(getattr(reading, name) for name in KEY)
