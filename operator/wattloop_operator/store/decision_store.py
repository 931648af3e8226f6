"""The decisions of attempts, each with what it was made from."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from wattloop_operator.domain.decision_inputs import StoredDecision
from wattloop_operator.store.database import Database
from wattloop_operator.store.observation_store import delete_beyond_bound_of_job
from wattloop_operator.store.tables import DECISIONS


class Decisions:
    """The decisions in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, inputs: StoredDecision) -> None:
        """Store a decision before its attempt is created, durably when this returns.

        It replaces an earlier one of the attempt, which then was not created.

        Raises:
            OperationError: The database failed; nothing is stored, and the call may be repeated.
        """
        spec, metadata = inputs.decided.spec, inputs.decided.metadata
        table, uid = DECISIONS.c, spec.job_ref.uid
        same = (table.job_uid == uid, table.recurrence == spec.index, table.attempt == spec.attempt)
        values = {
            "job_uid": uid,
            "recurrence": spec.index,
            "attempt": spec.attempt,
            "namespace": metadata.namespace,
            "job_name": spec.job_ref.name,
            "body": inputs.to_bytes(),
        }
        with self._database.writing(f"record the decision of {metadata.full_name}") as on:
            on.execute(delete(DECISIONS).where(*same))
            on.execute(insert(DECISIONS), values)
            delete_beyond_bound_of_job(on, DECISIONS, uid)

    def jobs(self) -> tuple[tuple[str, str, str], ...]:
        """Namespace, name and UID of the jobs that have decisions, in this order."""
        columns = (DECISIONS.c.namespace, DECISIONS.c.job_name, DECISIONS.c.job_uid)
        with self._database.reading("list the jobs that have decisions") as on:
            found = self._database.texts(DECISIONS, on.execute(select(*columns).distinct().order_by(*columns)))
        return tuple((namespace, name, uid) for namespace, name, uid in found)

    def of_job(self, job_uid: str) -> tuple[StoredDecision, ...]:
        """The decisions of a job, in the order in which they were made.

        Raises:
            InputError: One cannot be read, and the store leaves out none.
        """
        query = select(DECISIONS.c.recurrence, DECISIONS.c.attempt, DECISIONS.c.body)
        query = query.where(DECISIONS.c.job_uid == job_uid).order_by(DECISIONS.c.id)

        def read(recurrence: int, attempt: int, body: bytes) -> StoredDecision:
            name = f"decision of job {job_uid}, recurrence {recurrence}, attempt {attempt}"
            return StoredDecision.from_bytes(name, body)

        with self._database.reading(f"read the decisions of job {job_uid}") as on:
            return self._database.values(DECISIONS, on.execute(query), read)
