"""Late usages: what agents reported of an attempt after its outcome, for the sums of a job."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import select

from wattloop_operator.domain.records import LateUsage
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import LATE_USAGES

COLUMNS = [LATE_USAGES.c[field.name] for field in fields(LateUsage)]
KEY = ("job_uid", "recurrence", "attempt")


class LateUsages:
    """The late usages in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        insert = database.insert(LATE_USAGES)
        values = {name: insert.excluded[name] for name in ("energy_joules", "time_seconds")}
        self._upsert = insert.on_conflict_do_update(index_elements=KEY, set_=values)

    def record(self, late_usage: LateUsage) -> None:
        """Store a late usage, durably when this returns; it replaces an earlier one of the attempt.

        Raises:
            OperationError: The database failed; nothing is recorded, and the call may be repeated.
        """
        purpose = f"record the late usage of job {late_usage.job_uid}, recurrence {late_usage.recurrence}"
        with self._database.writing(purpose) as on:
            on.execute(self._upsert, vars(late_usage))

    def of_job(self, job_uid: str) -> tuple[LateUsage, ...]:
        """All late usages of a job, ordered by (recurrence, attempt)."""
        query = select(*COLUMNS).where(LATE_USAGES.c.job_uid == job_uid)
        with self._database.reading(f"read the late usages of job {job_uid}") as on:
            rows = on.execute(query.order_by(*(LATE_USAGES.c[name] for name in KEY))).all()
        return tuple(LateUsage(*row) for row in rows)
