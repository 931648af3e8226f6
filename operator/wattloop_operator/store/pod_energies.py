"""Energy of pods as reported by node agents; cumulative, so repeated reports change nothing."""

import itertools
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import and_, case, delete, func, or_, select, tuple_

from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import POD_ENERGIES
from wattloop_operator.store.tables import POD_ENERGY_KEY as KEY

# More than the GPUs of any training. Pods that have ended give way, those of the least energy first.
MAX_ROWS_OF_ATTEMPT = 65_536


class PodEnergies:
    """The energies of pods in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._upsert = _upsert(database)

    def record(self, energies: Iterable[PodEnergy]) -> None:
        """Store energies, durably when this returns.

        Of two with one key the higher is stored; if they are equal, the later; then the one that
        has ended.
        """
        # A fixed order of rows avoids deadlocks between writers.
        rows = [vars(energy) for energy in sorted(energies, key=lambda each: [getattr(each, name) for name in KEY])]
        if rows:
            with self._database.writing("record the energy of pods") as on:
                on.execute(self._upsert, rows)

    def of_job(self, job_uid: str, since_recurrence: int) -> dict[tuple[int, int], tuple[PodEnergy, ...]]:
        """Energies of a job from this recurrence on, by (recurrence, attempt), ordered by key."""
        table = POD_ENERGIES.c
        energies = self._select(
            f"read the energy of pods of job {job_uid}", table.job_uid == job_uid, table.recurrence >= since_recurrence
        )
        by_attempt = itertools.groupby(energies, key=lambda energy: (energy.recurrence, energy.attempt))
        return {attempt: tuple(group) for attempt, group in by_attempt}

    def of_attempt(self, job_uid: str, recurrence: int, attempt: int) -> tuple[PodEnergy, ...]:
        """Energies of one attempt, ordered by key."""
        purpose = f"read the energy of pods of job {job_uid}, recurrence {recurrence}"
        return self._select(purpose, *_of_attempt(job_uid, recurrence, attempt))

    def _select(self, purpose: str, *conditions: Any) -> tuple[PodEnergy, ...]:
        table = POD_ENERGIES.c
        order = (table.recurrence, table.attempt, *(table[name] for name in KEY))
        with self._database.reading(purpose) as on:
            rows = on.execute(select(POD_ENERGIES).where(*conditions).order_by(*order)).all()
        return tuple(PodEnergy(*row) for row in rows)

    def attempts_of(self, node: str, ledger: str, pod_uids: Collection[str]) -> dict[str, tuple[str, int, int]]:
        """Job uid, recurrence and attempt of the pods that this ledger has reported before."""
        table = POD_ENERGIES.c
        query = select(table.pod_uid, table.job_uid, table.recurrence, table.attempt).where(
            table.ledger == ledger, table.pod_uid.in_(pod_uids), table.node == node
        )
        with self._database.reading("read the attempts of pods") as on:
            return {uid: (job_uid, recurrence, attempt) for uid, job_uid, recurrence, attempt in on.execute(query)}

    def delete_job(self, job_uid: str) -> None:
        """Delete the energies of all attempts of a job."""
        with self._database.writing(f"delete the energy of pods of job {job_uid}") as on:
            on.execute(delete(POD_ENERGIES).where(POD_ENERGIES.c.job_uid == job_uid))

    def delete_attempt(self, job_uid: str, recurrence: int, attempt: int) -> None:
        """Delete the energies of an attempt, whose outcome is recorded."""
        with self._database.writing(f"delete the energy of pods of job {job_uid}, recurrence {recurrence}") as on:
            on.execute(delete(POD_ENERGIES).where(*_of_attempt(job_uid, recurrence, attempt)))

    def delete_before(self, moment: datetime, *, max_rows: int = 10_000) -> int:
        """Delete energies that were last reported before this moment; returns their number.

        Args:
            moment: With a time zone.
            max_rows: Maximum number of deletions, so that other writers do not wait long.
        """
        key = tuple_(*(POD_ENERGIES.c[name] for name in KEY))
        old = select(*(POD_ENERGIES.c[name] for name in KEY)).where(POD_ENERGIES.c.reported_at < moment).limit(max_rows)
        with self._database.writing("delete old energy of pods") as on:
            return on.execute(delete(POD_ENERGIES).where(key.in_(old))).rowcount

    def delete_surplus(self) -> int:
        """Delete energies of attempts with more rows than `MAX_ROWS_OF_ATTEMPT`; returns their number."""
        table = POD_ENERGIES.c
        attempt = (table.job_uid, table.recurrence, table.attempt)
        crowded = select(*attempt, func.count()).group_by(*attempt).having(func.count() > MAX_ROWS_OF_ATTEMPT)
        key = tuple_(*(table[name] for name in KEY))
        deleted = 0
        with self._database.writing("delete the energy of surplus pods") as on:
            for job_uid, recurrence, number, count in on.execute(crowded).all():
                least_first = select(*(table[name] for name in KEY)).where(*_of_attempt(job_uid, recurrence, number))
                least_first = least_first.order_by(table.ended.desc(), table.energy_millijoules)
                surplus = least_first.limit(count - MAX_ROWS_OF_ATTEMPT)
                deleted += on.execute(delete(POD_ENERGIES).where(key.in_(surplus))).rowcount
        return deleted


def _of_attempt(job_uid: str, recurrence: int, attempt: int) -> tuple[Any, ...]:
    table = POD_ENERGIES.c
    return table.job_uid == job_uid, table.recurrence == recurrence, table.attempt == attempt


def _upsert(database: Database) -> Any:
    insert = database.insert(POD_ENERGIES)
    old, new = POD_ENERGIES.c, insert.excluded
    same_energy = new.energy_millijoules == old.energy_millijoules
    same = and_(same_energy, new.time_seconds == old.time_seconds)
    return insert.on_conflict_do_update(
        index_elements=KEY,
        set_={
            "energy_millijoules": new.energy_millijoules,
            "time_seconds": case((new.time_seconds > old.time_seconds, new.time_seconds), else_=old.time_seconds),
            "uncertainty_millijoules": new.uncertainty_millijoules,
            "shared": or_(old.shared, new.shared),
            "ended": new.ended,
            "reported_at": new.reported_at,
            "measured_at": new.measured_at,
            # An agent that has just started, or a lost GPU, does not tell.
            "max_power_limit_watts": func.coalesce(new.max_power_limit_watts, old.max_power_limit_watts),
        },
        where=or_(
            new.energy_millijoules > old.energy_millijoules,
            and_(same_energy, new.time_seconds > old.time_seconds),
            and_(same, new.ended.is_(True), old.ended.is_(False)),
        ),
    )
