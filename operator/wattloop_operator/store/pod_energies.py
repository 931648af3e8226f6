"""What pods used of GPUs, in the agents' word: cumulative, so that what comes twice or late changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import and_, case, delete, or_, select, tuple_

from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import POD_ENERGIES

COLUMNS = [POD_ENERGIES.c[field.name] for field in fields(PodEnergy)]
KEY = ("ledger", "pod_uid", "container", "gpu_uuid")


class PodEnergies:
    """The energies of pods in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._upsert = _upsert(database)

    def record(self, energies: Iterable[PodEnergy]) -> None:
        """Keep energies, durably when this returns; of one key the highest stands, then the latest, then an end.

        Raises:
            OperationError: The database failed; none of them is kept, and all may be sent again.
        """
        # In one order: two writers of the same rows then never wait for each other in a circle.
        rows = [vars(energy) for energy in sorted(energies, key=_key)]
        if rows:
            with self._database.writing("record energies of pods") as on:
                on.execute(self._upsert, rows)

    def of_job(self, job_uid: str, since_recurrence: int) -> dict[tuple[int, int], tuple[PodEnergy, ...]]:
        """Those of one job's recurrences from this index on, by (recurrence, attempt), each ordered by their key."""
        table = POD_ENERGIES.c
        wanted = (
            select(*COLUMNS)
            .where(table.job_uid == job_uid, table.recurrence >= since_recurrence)
            .order_by(table.recurrence, table.attempt, *(table[name] for name in KEY))
        )
        with self._database.reading(f"read the pods' energies of job {job_uid}") as on:
            read = [PodEnergy(*row) for row in on.execute(wanted).all()]
        by_attempt = itertools.groupby(read, key=lambda energy: (energy.recurrence, energy.attempt))
        return {attempt: tuple(energies) for attempt, energies in by_attempt}

    def attempts_of(self, node: str, ledger: str, pod_uids: Collection[str]) -> dict[str, tuple[str, int, int]]:
        """Of these pods, those that this ledger of this node told of: job uid, recurrence and attempt of each."""
        table = POD_ENERGIES.c
        wanted = select(table.pod_uid, table.job_uid, table.recurrence, table.attempt).where(
            table.ledger == ledger, table.pod_uid.in_(pod_uids), table.node == node
        )
        with self._database.reading("read which attempts pods belong to") as on:
            return {uid: (job_uid, recurrence, attempt) for uid, job_uid, recurrence, attempt in on.execute(wanted)}

    def forget_job(self, job_uid: str) -> None:
        """Delete those of all attempts of a job that is gone."""
        with self._database.writing(f"delete the pods' energies of job {job_uid}") as on:
            on.execute(delete(POD_ENERGIES).where(POD_ENERGIES.c.job_uid == job_uid))

    def forget(self, job_uid: str, recurrence: int, attempt: int) -> None:
        """Delete those of one attempt: its outcome has been remembered."""
        with self._database.writing(f"delete the pods' energies of job {job_uid}, recurrence {recurrence}") as on:
            on.execute(delete(POD_ENERGIES).where(*_of_attempt(job_uid, recurrence, attempt)))

    def forget_before(self, moment: datetime, *, at_most: int = 10_000) -> int:
        """Delete those that nothing was heard of since then, whoever they belonged to; returns how many.

        Args:
            moment: With a time zone.
            at_most: How many one call deletes at most, so that other writers wait but shortly.
        """
        key = tuple_(*(POD_ENERGIES.c[name] for name in KEY))
        old = select(*(POD_ENERGIES.c[name] for name in KEY)).where(POD_ENERGIES.c.reported_at < moment).limit(at_most)
        with self._database.writing("delete old energies of pods") as on:
            return on.execute(delete(POD_ENERGIES).where(key.in_(old))).rowcount


def _key(energy: PodEnergy) -> tuple[str, ...]:
    return tuple(getattr(energy, name) for name in KEY)


def _of_attempt(job_uid: str, recurrence: int, attempt: int) -> tuple[Any, ...]:
    table = POD_ENERGIES.c
    return table.job_uid == job_uid, table.recurrence == recurrence, table.attempt == attempt


def _upsert(database: Database) -> Any:
    insert = database.insert(POD_ENERGIES)
    kept, new = POD_ENERGIES.c, insert.excluded
    same_energy = new.energy_millijoules == kept.energy_millijoules
    same = and_(same_energy, new.time_seconds == kept.time_seconds)
    return insert.on_conflict_do_update(
        index_elements=KEY,
        set_={
            "energy_millijoules": new.energy_millijoules,
            "time_seconds": _higher(kept.time_seconds, new.time_seconds),
            "uncertainty_millijoules": new.uncertainty_millijoules,
            "shared": or_(kept.shared, new.shared),
            "ended": new.ended,
            "reported_at": new.reported_at,
        },
        where=or_(
            new.energy_millijoules > kept.energy_millijoules,
            and_(same_energy, new.time_seconds > kept.time_seconds),
            and_(same, new.ended.is_(True), kept.ended.is_(False)),
        ),
    )


def _higher(kept: Any, new: Any) -> Any:
    return case((new > kept, new), else_=kept)
