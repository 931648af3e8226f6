"""What attempts used as it was known after their outcome: for sums; what was learned from them stands."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import select

from wattloop_operator.store.database import Database
from wattloop_operator.store.records import Amendment
from wattloop_operator.store.tables import AMENDMENTS

COLUMNS = [AMENDMENTS.c[field.name] for field in fields(Amendment)]
KEY = ("job_uid", "recurrence", "attempt")


class Amendments:
    """The amendments in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        insert = database.insert(AMENDMENTS)
        values = {name: insert.excluded[name] for name in ("energy_joules", "time_seconds")}
        self._upsert = insert.on_conflict_do_update(index_elements=KEY, set_=values)

    def record(self, amendment: Amendment) -> None:
        """Keep an amendment, durably when this returns; of one attempt the latest stands.

        Raises:
            CannotError: The database failed; nothing is recorded, and it may be tried again.
        """
        purpose = f"record what recurrence {amendment.recurrence} of job {amendment.job_uid} used"
        with self._database.writing(purpose) as on:
            on.execute(self._upsert, vars(amendment))

    def of_job(self, job_uid: str) -> tuple[Amendment, ...]:
        """All of one job, ordered by (recurrence, attempt)."""
        wanted = select(*COLUMNS).where(AMENDMENTS.c.job_uid == job_uid)
        with self._database.reading(f"read the amendments of job {job_uid}") as on:
            rows = on.execute(wanted.order_by(*(AMENDMENTS.c[name] for name in KEY))).all()
        return tuple(Amendment(*row) for row in rows)
