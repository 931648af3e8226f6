"""Whether something was written since a reader looked last: counts and sums, which indices give without the rows."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from wattloop_operator.store.tables import (
    ATTEMPT_PROGRESS,
    LATE_USAGES,
    MEASUREMENTS,
    OBJECT_VERSION,
    OBSERVATIONS,
    PROFILES,
)


def database_version(on: Connection) -> str:
    """A text that changes when an object, the progress of its attempt or an observation is written."""
    objects = on.execute(select(OBJECT_VERSION.c.resource_version)).scalar_one()
    observations = on.execute(select(func.count()).select_from(OBSERVATIONS)).scalar_one()
    # The database of a cluster has no objects, so nothing that is shown of it depends on progress.
    reported = on.execute(select(func.max(ATTEMPT_PROGRESS.c.updated_at))).scalar_one() if objects else None
    return f"{objects}-{observations}" + (f"-{reported}" if reported else "")


def job_version(on: Connection, job_uid: str) -> str:
    """A text that changes when the records of a job do: observations are only added, the others also replaced."""
    newest = select(OBSERVATIONS.c.recurrence, OBSERVATIONS.c.attempt).where(OBSERVATIONS.c.job_uid == job_uid)
    newest = newest.order_by(OBSERVATIONS.c.recurrence.desc(), OBSERVATIONS.c.attempt.desc()).limit(1)
    observations = select(func.count()).where(OBSERVATIONS.c.job_uid == job_uid)
    late = select(func.count(), func.sum(LATE_USAGES.c.energy_joules)).where(LATE_USAGES.c.job_uid == job_uid)
    measured = select(func.count(), func.sum(MEASUREMENTS.c.energy_joules)).join_from(MEASUREMENTS, PROFILES)
    parts = [
        each
        for query in (newest, observations, late, measured.where(PROFILES.c.job_uid == job_uid))
        for each in on.execute(query).first() or ()
    ]
    return "-".join(map(str, parts))
