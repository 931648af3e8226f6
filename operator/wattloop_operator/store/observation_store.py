"""Records of attempts: decisions, observations, and usage that agents reported after the outcome.

Observations are append-only; a second record of an attempt is ignored. The others are replaced. All are bounded: of a
job the oldest attempts are deleted, and of a namespace the jobs whose last attempt ended first.
"""

import logging
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import ClassVar

import sqlalchemy as sa
from pydantic.dataclasses import dataclass

from wattloop_operator.domain.decision_inputs import StoredDecision
from wattloop_operator.domain.record_fields import RECORD, Amount, Count, Index, Name, StoredRecord, Text, Time
from wattloop_operator.domain.records import MAX_OBSERVATIONS_OF_JOB, LateUsage, ObservationRecord
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import ATTEMPT, DECISIONS, LATE_USAGES, OBSERVATIONS, PROFILES

logger = logging.getLogger(__name__)
# Those that were deleted count too: a job may learn from one of the past.
MAX_JOBS_OF_NAMESPACE = 1_000


@dataclass(frozen=True, config=RECORD)
class JobObservations(StoredRecord):
    """A job that has observations, and their number."""

    source: ClassVar[str] = "job {namespace}/{job_name}"

    job_uid: Name
    namespace: Name
    job_name: Name
    observations: Count


@dataclass(frozen=True, config=RECORD)
class AttemptUsage(StoredRecord):
    """Energy, time and GPUs of an attempt that ended, late usage included.

    The attributes are those of its `ObservationRecord`.
    """

    source: ClassVar[str] = "observation {namespace}/{recurrence_name}"

    namespace: Name
    job_name: Name
    recurrence_name: Name
    energy_joules: Amount
    time_seconds: Amount
    gpu_product: Text
    gpu_count: Index
    attribution: Text
    finished_at: Time


class Observations:
    """The observations in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._insert = (
            database.insert(OBSERVATIONS)
            .on_conflict_do_nothing(index_elements=ATTEMPT)
            .returning(OBSERVATIONS.c.attempt)
        )
        self._ended = _is_time(OBSERVATIONS.c.finished_at) if database.is_sqlite else sa.true()

    def record(self, record: ObservationRecord) -> bool:
        """Store an observation, durably when this returns.

        An attempt ends once, so a second record of it is a repetition or a defect, and an
        observation that decisions are based on must not change. A second record that differs is
        ignored with a warning that names the object and the columns.

        Returns:
            Whether the observation is new.
        """
        with self._database.writing(f"record the observation of {record.namespace}/{record.recurrence_name}") as on:
            if on.execute(self._insert, {each.name: getattr(record, each.name) for each in fields(record)}).first():
                _delete_beyond_bounds(on, record)
                return True
            stored = self._select(
                on,
                OBSERVATIONS.c.job_uid == record.job_uid,
                OBSERVATIONS.c.recurrence == record.recurrence,
                OBSERVATIONS.c.attempt == record.attempt,
            )[0]
        _warn_of_difference(stored, record)
        return False

    def of_job(self, job_uid: str) -> tuple[ObservationRecord, ...]:
        """All observations of a job, ordered by (recurrence, attempt)."""
        with self._database.reading(f"read the observations of job {job_uid}") as on:
            return self._select(on, OBSERVATIONS.c.job_uid == job_uid)

    def job_uids(self) -> set[str]:
        """The uids of all jobs that have observations."""
        return self._database.distinct(OBSERVATIONS.c.job_uid, "list the jobs that have observations")

    def last_of_job(self, job_uid: str) -> ObservationRecord | None:
        """The observation of the latest attempt of a job; None if there is none."""
        newest = sa.select(OBSERVATIONS).where(OBSERVATIONS.c.job_uid == job_uid)
        newest = newest.order_by(OBSERVATIONS.c.recurrence.desc(), OBSERVATIONS.c.attempt.desc()).limit(1)
        with self._database.reading(f"read the last observation of job {job_uid}") as on:
            found = self._database.values(OBSERVATIONS, on.execute(newest), ObservationRecord)
        return found[0] if found else None

    def of_name(self, namespace: str, job_name: str) -> tuple[ObservationRecord, ...]:
        """All observations of jobs of this name, ordered by (job_uid, recurrence, attempt)."""
        with self._database.reading(f"read the observations of {namespace}/{job_name}") as on:
            return self._select(on, OBSERVATIONS.c.namespace == namespace, OBSERVATIONS.c.job_name == job_name)

    def usages(self, begin: datetime, end: datetime) -> tuple[AttemptUsage, ...]:
        """The usages of all attempts that ended from `begin` on, and before `end`, ordered by namespace and name."""
        table, late = OBSERVATIONS.c, LATE_USAGES.c
        columns = [
            sa.func.coalesce(late[each.name], table[each.name]) if each.name in late else table[each.name]
            for each in fields(AttemptUsage)
        ]
        of_attempt = sa.and_(*(table[name] == late[name] for name in ATTEMPT))
        query = sa.select(*columns).outerjoin_from(OBSERVATIONS, LATE_USAGES, of_attempt)
        is_in_month = sa.and_(table.finished_at >= begin, table.finished_at < end)
        # An attempt whose end is not a time may be one of the month; its row is left out by name.
        query = query.where(sa.or_(is_in_month, sa.not_(self._ended))).order_by(table.namespace, table.job_name)
        with self._database.reading("read the usages of attempts") as on:
            return self._database.values(OBSERVATIONS, on.execute(query), AttemptUsage)

    def latest_end(self) -> datetime | None:
        """When the attempt that ended last did so; None before the first."""
        with self._database.reading("read when the latest attempt ended") as on:
            latest: object = on.execute(
                sa.select(sa.func.max(OBSERVATIONS.c.finished_at)).where(self._ended)
            ).scalar_one()
        return latest if isinstance(latest, datetime) else None

    def jobs(self) -> tuple[JobObservations, ...]:
        """The jobs that have observations, ordered by namespace, name and uid."""
        columns = OBSERVATIONS.c
        uid, names = columns.job_uid, (columns.namespace, columns.job_name)
        with self._database.reading("list the jobs") as on:
            rows = on.execute(sa.select(uid, *names, sa.func.count()).group_by(*names, uid).order_by(*names, uid))
            return self._database.values(OBSERVATIONS, rows, JobObservations)

    def _select(self, on: sa.Connection, *conditions: sa.ColumnElement[bool]) -> tuple[ObservationRecord, ...]:
        ordered = sa.select(OBSERVATIONS).where(*conditions).order_by(*(OBSERVATIONS.c[name] for name in ATTEMPT))
        return self._database.values(OBSERVATIONS, on.execute(ordered), ObservationRecord)


class LateUsages:
    """The late usages in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        upsert = database.insert(LATE_USAGES)
        values = {name: upsert.excluded[name] for name in ("energy_joules", "time_seconds")}
        self._upsert = upsert.on_conflict_do_update(index_elements=ATTEMPT, set_=values)

    def record(self, late_usage: LateUsage) -> None:
        """Store a late usage, durably when this returns; it replaces an earlier one of the attempt."""
        purpose = f"record the late usage of job {late_usage.job_uid}, recurrence {late_usage.recurrence}"
        with self._database.writing(purpose) as on:
            on.execute(self._upsert, vars(late_usage))
            _delete_beyond_bound_of_job(on, LATE_USAGES, late_usage.job_uid)

    def of_job(self, job_uid: str) -> tuple[LateUsage, ...]:
        """All late usages of a job, ordered by (recurrence, attempt)."""
        query = sa.select(LATE_USAGES).where(LATE_USAGES.c.job_uid == job_uid)
        with self._database.reading(f"read the late usages of job {job_uid}") as on:
            rows = on.execute(query.order_by(*(LATE_USAGES.c[name] for name in ATTEMPT)))
            return self._database.values(LATE_USAGES, rows, LateUsage)

    def job_uids(self) -> set[str]:
        """The uids of all jobs that have late usages."""
        return self._database.distinct(LATE_USAGES.c.job_uid, "list the jobs that have late usages")


class Decisions:
    """The decisions in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, inputs: StoredDecision) -> None:
        """Store a decision before its attempt is created, durably when this returns.

        It replaces an earlier one of the attempt, which then was not created.
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
            on.execute(sa.delete(DECISIONS).where(*same))
            on.execute(sa.insert(DECISIONS), values)
            _delete_beyond_bound_of_job(on, DECISIONS, uid)

    def jobs(self) -> tuple[tuple[str, str, str], ...]:
        """Namespace, name and UID of the jobs that have decisions, in this order."""
        columns = (DECISIONS.c.namespace, DECISIONS.c.job_name, DECISIONS.c.job_uid)
        with self._database.reading("list the jobs that have decisions") as on:
            found = self._database.texts(DECISIONS, on.execute(sa.select(*columns).distinct().order_by(*columns)))
        return tuple((namespace, name, uid) for namespace, name, uid in found)

    def of_job(self, job_uid: str) -> tuple[StoredDecision, ...]:
        """The decisions of a job, in the order in which they were made.

        Raises:
            InputError: One cannot be read, and the store leaves out none.
        """
        query = sa.select(DECISIONS.c.recurrence, DECISIONS.c.attempt, DECISIONS.c.body)
        query = query.where(DECISIONS.c.job_uid == job_uid).order_by(DECISIONS.c.id)

        def read(recurrence: int, attempt: int, body: bytes) -> StoredDecision:
            name = f"decision of job {job_uid}, recurrence {recurrence}, attempt {attempt}"
            return StoredDecision.from_bytes(name, body)

        with self._database.reading(f"read the decisions of job {job_uid}") as on:
            return self._database.values(DECISIONS, on.execute(query), read)


def _delete_beyond_bounds(on: sa.Connection, new: ObservationRecord) -> None:
    cutoff = _delete_beyond_bound_of_job(on, OBSERVATIONS, new.job_uid)
    if cutoff is not None:
        on.execute(sa.delete(LATE_USAGES).where(LATE_USAGES.c.job_uid == new.job_uid, _attempt(LATE_USAGES) <= cutoff))
    table = OBSERVATIONS.c
    is_first = on.execute(sa.select(sa.func.count()).where(table.job_uid == new.job_uid)).scalar_one() == 1
    if is_first:
        newest_first = sa.func.max(table.finished_at).desc()
        jobs = sa.select(table.job_uid).where(table.namespace == new.namespace, table.job_uid != new.job_uid)
        surplus = jobs.group_by(table.job_uid).order_by(newest_first).offset(MAX_JOBS_OF_NAMESPACE - 1)
        for job_uid in on.execute(surplus).scalars().all():
            for each in (OBSERVATIONS, LATE_USAGES, PROFILES, DECISIONS):
                on.execute(sa.delete(each).where(each.c.job_uid == job_uid))


def _delete_beyond_bound_of_job(on: sa.Connection, table: sa.Table, job_uid: str) -> tuple[int, int] | None:
    """Delete the oldest attempts of a job beyond the bound; returns the newest of them."""
    newest_first = sa.select(table.c.recurrence, table.c.attempt).where(table.c.job_uid == job_uid)
    newest_first = newest_first.order_by(table.c.recurrence.desc(), table.c.attempt.desc())
    row = on.execute(newest_first.offset(MAX_OBSERVATIONS_OF_JOB).limit(1)).first()
    if row is None:
        return None
    cutoff = (row.recurrence, row.attempt)
    on.execute(sa.delete(table).where(table.c.job_uid == job_uid, _attempt(table) <= cutoff))
    return cutoff


def _is_time(column: sa.Column[datetime]) -> sa.ColumnElement[bool]:
    """Whether SQLite, which stores any text, has a time in a column."""
    minute = sa.func.substr(column, 1, len("2026-03-01 12:00"))
    return sa.and_(minute >= "0001", sa.func.coalesce(sa.func.strftime("%Y-%m-%d %H:%M", column), "") == minute)


def _attempt(table: sa.Table) -> sa.Tuple:
    return sa.tuple_(table.c.recurrence, table.c.attempt)


def _warn_of_difference(stored: ObservationRecord, ignored: ObservationRecord) -> None:
    columns: Sequence[str] = [
        f"{field.name} (stored {getattr(stored, field.name)!r}, ignored {getattr(ignored, field.name)!r})"
        for field in fields(ObservationRecord)
        if getattr(stored, field.name) != getattr(ignored, field.name)
    ]
    if columns:
        logger.warning(
            "observation %s/%s (recurrence %d, attempt %d) was recorded before with other values; "
            "ignored the new ones: %s",
            stored.namespace,
            stored.recurrence_name,
            stored.recurrence,
            stored.attempt,
            ", ".join(columns),
        )
