"""What attempts used as it was known after their outcome: for sums; what was learned from them stands."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import select

from wattloop_operator.domain.records import LateUsage
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import LATE_USAGES

COLUMNS = [LATE_USAGES.c[field.name] for field in fields(LateUsage)]
KEY = ("job_uid", "recurrence", "attempt")


class LateUsages:
    """The amendments in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        insert = database.insert(LATE_USAGES)
        values = {name: insert.excluded[name] for name in ("energy_joules", "time_seconds")}
        self._upsert = insert.on_conflict_do_update(index_elements=KEY, set_=values)

    def record(self, late_usage: LateUsage) -> None:
        """Keep an amendment, durably when this returns; of one attempt the latest stands.

        Raises:
            OperationError: The database failed; nothing is recorded, and it may be tried again.
        """
        purpose = f"record what recurrence {late_usage.recurrence} of job {late_usage.job_uid} used"
        with self._database.writing(purpose) as on:
            on.execute(self._upsert, vars(late_usage))

    def of_job(self, job_uid: str) -> tuple[LateUsage, ...]:
        """All of one job, ordered by (recurrence, attempt)."""
        wanted = select(*COLUMNS).where(LATE_USAGES.c.job_uid == job_uid)
        with self._database.reading(f"read the amendments of job {job_uid}") as on:
            rows = on.execute(wanted.order_by(*(LATE_USAGES.c[name] for name in KEY))).all()
        return tuple(LateUsage(*row) for row in rows)
