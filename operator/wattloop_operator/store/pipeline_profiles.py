"""The rows of pipeline profiles, of which a job has a bounded number: the one that was unused longest gives way.

A profile that an attempt uses now is kept, whatever other attempts of the job register.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, select, update

from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineProfileKey
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import PIPELINE_PROFILE_KEY, PIPELINE_PROFILES, PIPELINES

MAX_PROFILES_OF_JOB = 8
# A rank that trains reports at least every minute. Later its attempt counts as ended, and measures again if it is not.
IN_USE = timedelta(hours=1)
# A training that recurs every quarter still finds its profile.
RETENTION = timedelta(days=180)


def use_profile(database: Database, on: Connection, key: PipelineProfileKey, now: datetime) -> int:
    """Find or create a profile that an attempt begins to use; returns its id.

    Beyond the bound, the profile of the job that was unused longest is deleted.
    """
    table = PIPELINE_PROFILES.c
    # All rows of the job first, in one order: attempts of a job that do this at the same time wait for each other.
    on.execute(select(table.id).where(table.job_uid == key.job_uid).order_by(table.id).with_for_update()).all()
    profile_id: int = on.execute(
        database.insert(PIPELINE_PROFILES)
        .values(**asdict(key), used_at=now)
        .on_conflict_do_update(index_elements=PIPELINE_PROFILE_KEY, set_={"used_at": now})
        .returning(table.id)
    ).scalar_one()
    if beyond := _beyond_bound(on, key.job_uid, profile_id, now):
        delete_profiles(on, table.id.in_(beyond))
    return profile_id


def profile_id_of(on: Connection, key: PipelineProfileKey) -> int | None:
    """The id of a profile; None if it does not exist."""
    same = (PIPELINE_PROFILES.c[name] == getattr(key, name) for name in PIPELINE_PROFILE_KEY)
    return on.execute(select(PIPELINE_PROFILES.c.id).where(*same)).scalar_one_or_none()


def delete_unused_profiles(on: Connection, now: datetime) -> None:
    """Delete the profiles that no attempt has used for `RETENTION`, such as those of a job that is gone."""
    table = PIPELINE_PROFILES.c
    unused = on.execute(select(table.id).where(table.used_at < now - RETENTION, table.id.not_in(_used(now)))).scalars()
    delete_profiles(on, table.id.in_(unused.all()))


def delete_profiles(on: Connection, which: ColumnElement[bool]) -> None:
    """Delete profiles; a replica that knows a pipeline with one of them reads it again."""
    pipelines = PIPELINES.c
    ids = select(PIPELINE_PROFILES.c.id).where(which)
    on.execute(
        update(PIPELINES).where(pipelines.profile_id.in_(ids)).values(profile_id=None, revision=pipelines.revision + 1)
    )
    on.execute(delete(PIPELINE_PROFILES).where(which))


def _beyond_bound(on: Connection, job_uid: str, chosen: int, now: datetime) -> list[int]:
    table = PIPELINE_PROFILES.c
    oldest_first = (
        select(table.id).where(table.job_uid == job_uid).order_by(table.used_at.asc().nulls_first(), table.id)
    )
    present = on.execute(oldest_first).scalars().all()
    kept = {chosen, *on.execute(_used(now).where(PIPELINES.c.job_uid == job_uid)).scalars()}
    surplus = max(len(present) - MAX_PROFILES_OF_JOB, 0)
    return [profile_id for profile_id in present if profile_id not in kept][:surplus]


def _used(now: datetime) -> Any:
    """The profiles that attempts use now."""
    return select(PIPELINES.c.profile_id).where(
        PIPELINES.c.profile_id.is_not(None), PIPELINES.c.updated_at >= now - IN_USE
    )
