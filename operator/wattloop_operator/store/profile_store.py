"""Power profiles: the energy and time of one batch size at each power limit, on one type of GPU."""

import itertools
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, insert, select

from wattloop.errors import InputError
from wattloop_operator.domain.records import PowerMeasurement, PowerProfileKey, PowerProfileRecord
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import MEASUREMENTS, PROFILES

# Of a job: each batch size has one for each image. The oldest give way.
MAX_PROFILES_OF_JOB = 128
KEY = tuple(field.name for field in fields(PowerProfileKey))
VALUES = tuple(field.name for field in fields(PowerMeasurement))


class Profiles:
    """The power profiles in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, key: PowerProfileKey, measurements: Iterable[PowerMeasurement]) -> None:
        """Store a profile, durably when this returns; it replaces an earlier one of the same key.

        Raises:
            InputError: There are no measurements, or two of the same power limit.
        """
        ordered = sorted(measurements, key=lambda measurement: measurement.power_limit_watts)
        _check(key, ordered)
        with self._database.writing(f"record the {_name(key)}") as on:
            # The update changes nothing; it locks the profile's row against a second writer of the
            # same key.
            profile_id = on.execute(
                self._database.insert(PROFILES)
                .values(asdict(key))
                .on_conflict_do_update(index_elements=KEY, set_={"batch_size": key.batch_size})
                .returning(PROFILES.c.id)
            ).scalar_one()
            on.execute(delete(MEASUREMENTS).where(MEASUREMENTS.c.profile_id == profile_id))
            on.execute(insert(MEASUREMENTS), [{"profile_id": profile_id, **asdict(measured)} for measured in ordered])
            others = select(PROFILES.c.id).where(PROFILES.c.job_uid == key.job_uid, PROFILES.c.id != profile_id)
            beyond = on.execute(others.order_by(PROFILES.c.id.desc()).offset(MAX_PROFILES_OF_JOB - 1)).scalars().all()
            on.execute(delete(PROFILES).where(PROFILES.c.id.in_(beyond)))

    def get(self, key: PowerProfileKey) -> PowerProfileRecord | None:
        """The profile of this key, or None if there is none."""
        found = self._select(f"read the {_name(key)}", *(PROFILES.c[name] == getattr(key, name) for name in KEY))
        return found[0] if found else None

    def of_job(self, job_uid: str) -> tuple[PowerProfileRecord, ...]:
        """All profiles of a job, ordered by key."""
        return self._select(f"read the power profiles of job {job_uid}", PROFILES.c.job_uid == job_uid)

    def job_uids(self) -> set[str]:
        """The uids of all jobs that have profiles."""
        return self._database.distinct(PROFILES.c.job_uid, "list the jobs that have power profiles")

    def _select(self, purpose: str, *conditions: ColumnElement[bool]) -> tuple[PowerProfileRecord, ...]:
        keys = [PROFILES.c[name] for name in KEY]
        with self._database.reading(purpose) as on:
            rows = on.execute(
                select(*keys, *(MEASUREMENTS.c[name] for name in VALUES))
                .join_from(PROFILES, MEASUREMENTS)
                .where(*conditions)
                .order_by(*keys, MEASUREMENTS.c.power_limit_watts)
            ).all()
        grouped = itertools.groupby(rows, key=lambda row: tuple(row[: len(KEY)]))
        return self._database.values(PROFILES, ((key, list(group)) for key, group in grouped), _profile)


def _profile(key: tuple[Any, ...], rows: list[Row[Any]]) -> PowerProfileRecord:
    return PowerProfileRecord(PowerProfileKey(*key), tuple(PowerMeasurement(*row[len(KEY) :]) for row in rows))


def _check(key: PowerProfileKey, ordered: list[PowerMeasurement]) -> None:
    if not ordered:
        raise InputError(_name(key), "no measurements", "at least one")
    for before, after in itertools.pairwise(ordered):
        if before.power_limit_watts == after.power_limit_watts:
            raise InputError(_name(key), f"{before.power_limit_watts:g} W twice", "one measurement per power limit")


def _name(key: PowerProfileKey) -> str:
    return f"power profile of job {key.job_uid}, batch size {key.batch_size}, {key.gpu_count} × {key.gpu_product}"
