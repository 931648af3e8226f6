"""Pipelines in a database: one transaction for each change, under a lock of the pipeline's row.

Several replicas receive reports of one pipeline. Each keeps the state in memory; a change locks the row, reads what
other replicas have written since, applies the change to that, and writes what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, delete, select, tuple_, update

from wattloop.errors import OperationError
from wattloop_operator.reconcile.pipeline.pipeline_json import (
    Part,
    decode,
    encode,
    part_digest,
    part_of,
    with_part,
    without_part,
    without_rows,
)
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    PipelineFrontier,
    PipelineKey,
    PipelineProfile,
    PipelineProfileKey,
    PipelineRank,
    PipelineState,
    RankMeasurements,
)
from wattloop_operator.store.database import Database
from wattloop_operator.store.pipeline_profiles import (
    delete_profiles,
    delete_unused_profiles,
    profile_id_of,
    use_profile,
)
from wattloop_operator.store.tables import (
    ATTEMPT,
    PIPELINE_MEASUREMENTS,
    PIPELINE_PARTS,
    PIPELINE_PROFILES,
    PIPELINE_RANKS,
    PIPELINES,
)

# Attempts that have ended, and those that run at the same time; the one that is silent longest gives way.
MAX_PIPELINES_OF_JOB = 32
# An attempt that sends nothing for so long has ended.
RETENTION = timedelta(days=30)
# A pipeline whose ranks are silent for so long is not planned: without them nobody runs the plan.
MAX_WAIT = timedelta(minutes=5)
Change = Callable[[PipelineState], PipelineState]
# What the job and the recurrence say of a pipeline, which may have changed since it was stored.
OF_RECURRENCE = ("batch_size", "image_digest", "job_plan")


class WaitingPipeline(NamedTuple):
    """A pipeline that waits for the planner, and its TrainingRecurrence."""

    key: PipelineKey
    namespace: str
    name: str


@dataclass(frozen=True)
class StoredPipeline:
    """A state as it is stored.

    Attributes:
        state: The state.
        revision: Revision of the pipeline's row.
        profile_id: Id of its profile; None before the first registration.
        parts: Digests of the parts that are stored, by their content.
    """

    state: PipelineState
    revision: int
    profile_id: int | None
    parts: Mapping[Part, str]


class Pipelines:
    """The pipelines in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Their construction takes longer than their execution.
        self._upserts = {
            table.name: _upsert(database, table, key)
            for table, key in (
                (PIPELINE_PARTS, (*ATTEMPT, "digest")),
                (PIPELINE_RANKS, (*ATTEMPT, "rank")),
                (PIPELINE_MEASUREMENTS, ("profile_id", "rank", "process")),
            )
        }

    def read(self, key: PipelineKey) -> PipelineState | None:
        """The state of an attempt's pipeline; None if no rank has registered.

        Raises:
            OperationError: The database failed.
        """
        with self._database.reading(f"read the pipeline of {_name(key)}") as on:
            row = _row(on, key)
            return None if row is None else _load(on, key, row).state

    def revisions(self) -> dict[PipelineKey, int]:
        """The revision of every pipeline; each change of a pipeline gives it another one.

        Raises:
            OperationError: The database failed.
        """
        with self._database.reading("list the pipelines") as on:
            found = on.execute(select(*(PIPELINES.c[name] for name in ATTEMPT), PIPELINES.c.revision))
            return {PipelineKey(*key): revision for *key, revision in found}

    def waiting(self, now: datetime) -> list[WaitingPipeline]:
        """The pipelines that wait for the planner and whose ranks sent something lately; the newest first.

        Raises:
            OperationError: The database failed.
        """
        table = PIPELINES.c
        with self._database.reading("list the pipelines that wait for a plan") as on:
            found = on.execute(
                select(*(table[name] for name in ATTEMPT), table.namespace, table.recurrence_name)
                .where(table.waits_for_plan, table.updated_at >= now - MAX_WAIT)
                .order_by(table.updated_at.desc(), table.recurrence.desc(), table.attempt.desc())
            )
            return [WaitingPipeline(PipelineKey(*key), namespace, name) for *key, namespace, name in found]

    def read_without_measurements(self, key: PipelineKey) -> PipelineState | None:
        """As `read`, with a profile that has its key alone: of large jobs the measurements are most of the state."""
        with self._database.reading(f"read the pipeline of {_name(key)}") as on:
            row = _row(on, key)
            return None if row is None else _load(on, key, row, measurements=False).state

    def change(
        self, new: PipelineState, known: StoredPipeline | None, merge: Change, decide: Change, now: datetime
    ) -> StoredPipeline:
        """Change a pipeline in one transaction, durably when this returns.

        Args:
            new: The state of a pipeline that is not stored yet; what its recurrence says replaces what is stored.
            known: The state as this replica last stored or read it; None if it is not known.
            merge: Merges messages. Called with the present state.
            decide: Decides what the ranks do. Called with the merged state and its stored profile.
            now: The time, for the deletion of old pipelines.

        Raises:
            OperationError: The database failed; nothing is stored, and the call may be repeated.
        """
        key = new.key
        with self._database.writing(f"change the pipeline of {_name(key)}") as on:
            before = self._locked(on, new, known, now)
            if (before.state.namespace, before.state.name) != (new.namespace, new.name):
                raise OperationError(
                    f"the pipeline of {_name(key)} is that of {before.state.namespace}/{before.state.name}, and not of "
                    f"{new.namespace}/{new.name}"
                )
            present = replace(before.state, **{name: getattr(new, name) for name in OF_RECURRENCE})
            merged = merge(present)
            after = before
            is_missing = merged.profile is not None and before.profile_id is None
            if is_missing or _profile_key(merged) != _profile_key(before.state):
                profile_id, merged = self._with_profile(on, merged, now)
                after = replace(after, profile_id=profile_id)
            state = decide(merged)
            if state == before.state and after.profile_id == before.profile_id:
                return before
            revision = before.revision + 1
            parts = self._write(on, before, state, after.profile_id, revision)
            row = {"revision": revision, "body": encode(without_rows(state)), "updated_at": now}
            row |= {"profile_id": after.profile_id, "waits_for_plan": state.waits_for_plan}
            on.execute(update(PIPELINES).where(*_of(PIPELINES, key)).values(row))
            return StoredPipeline(state, revision, after.profile_id, parts)

    def delete_attempt(self, job_uid: str, recurrence: int, attempt: int) -> None:
        """Delete the pipeline of an attempt; its profile stays for later recurrences."""
        with self._database.writing(f"delete the pipeline of job {job_uid}, recurrence {recurrence}") as on:
            on.execute(delete(PIPELINES).where(*_of(PIPELINES, PipelineKey(job_uid, recurrence, attempt))))

    def delete_job(self, job_uid: str) -> None:
        """Delete the pipelines and the profiles of a job."""
        with self._database.writing(f"delete the pipelines of job {job_uid}") as on:
            on.execute(delete(PIPELINES).where(PIPELINES.c.job_uid == job_uid))
            delete_profiles(on, PIPELINE_PROFILES.c.job_uid == job_uid)

    def delete_old(self, now: datetime) -> int:
        """Delete the pipelines that have not changed for `RETENTION`, and unused profiles; returns the pipelines."""
        with self._database.writing("delete old pipelines") as on:
            deleted = on.execute(delete(PIPELINES).where(PIPELINES.c.updated_at < now - RETENTION)).rowcount
            delete_unused_profiles(on, now)
            return deleted

    def _locked(
        self, on: Connection, new: PipelineState, known: StoredPipeline | None, now: datetime
    ) -> StoredPipeline:
        """The state as it is stored now; its row is locked until the transaction ends."""
        row = None if known is None else _row(on, new.key, lock=True)
        if row is None:
            known = None
            self._insert(on, new, now)
            row = _row(on, new.key, lock=True)
        if known is None or known.revision > row.revision:
            return _load(on, new.key, row)
        return known if known.revision == row.revision else _load(on, new.key, row, known)

    def _insert(self, on: Connection, new: PipelineState, now: datetime) -> None:
        row = {"namespace": new.namespace, "recurrence_name": new.name, "revision": 0, "updated_at": now}
        on.execute(
            self._database.insert(PIPELINES)
            .values(**asdict(new.key), **row, body=encode(without_rows(new)))
            .on_conflict_do_nothing(index_elements=ATTEMPT)
        )
        table = PIPELINES.c
        others = select(table.recurrence, table.attempt).where(
            table.job_uid == new.key.job_uid,
            tuple_(table.recurrence, table.attempt) != (new.key.recurrence, new.key.attempt),
        )
        newest_first = others.order_by(table.updated_at.desc(), table.recurrence.desc(), table.attempt.desc())
        for surplus in on.execute(newest_first.offset(MAX_PIPELINES_OF_JOB - 1)).all():
            on.execute(delete(PIPELINES).where(*_of(PIPELINES, PipelineKey(new.key.job_uid, *surplus))))

    def _with_profile(self, on: Connection, state: PipelineState, now: datetime) -> tuple[int, PipelineState]:
        """The state with all that is stored of its profile."""
        assert state.profile is not None
        key = state.profile.key
        profile_id = use_profile(self._database, on, key, now)
        stored = _with_stored_profile(on, replace(state, frontier=None), profile_id, key, None)
        assert stored.profile is not None
        processes = {**stored.profile.processes, **state.profile.processes}
        return profile_id, replace(stored, profile=PipelineProfile(key, processes))

    def _write(
        self, on: Connection, before: StoredPipeline, state: PipelineState, profile_id: int | None, revision: int
    ) -> Mapping[Part, str]:
        key = asdict(state.key)
        parts = dict(before.parts)
        old = before.state.ranks
        changed = {number: rank for number, rank in state.ranks.items() if old.get(number) is not rank}
        new_parts: list[dict[str, Any]] = []
        for rank in changed.values():
            part = part_of(rank.registration)
            if part not in parts:
                body = encode(part)
                parts[part] = part_digest(body)
                new_parts.append({**key, "digest": parts[part], "body": body})
        self._upsert(on, PIPELINE_PARTS, new_parts)
        rows = [
            {
                **key,
                "rank": number,
                "revision": revision,
                "part": parts[part_of(rank.registration)],
                "body": encode(without_part(rank)),
            }
            for number, rank in sorted(changed.items())
        ]
        self._upsert(on, PIPELINE_RANKS, rows)
        if new_parts:
            parts = _delete_unused_parts(on, state.key, parts)
        if gone := [number for number in old if number not in state.ranks]:
            on.execute(delete(PIPELINE_RANKS).where(*_of(PIPELINE_RANKS, state.key), PIPELINE_RANKS.c.rank.in_(gone)))
        if profile_id is not None and state.profile is not None:
            profile_of = {"profile_id": profile_id, "recurrence": state.key.recurrence, "attempt": state.key.attempt}
            self._write_measurements(on, before.state.profile, state.profile, profile_of | {"revision": revision})
        if state.frontier is not None and state.frontier is not before.state.frontier:
            _write_frontier(on, profile_id, state.frontier)
        return parts

    def _write_measurements(
        self, on: Connection, before: PipelineProfile | None, profile: PipelineProfile, columns: dict[str, Any]
    ) -> None:
        if profile is before:
            return
        old = before.processes if before is not None and before.key == profile.key else {}
        changed = [(pair, each) for pair, each in profile.processes.items() if old.get(pair) is not each]
        rows = [
            {**columns, "rank": rank, "process": process, "body": encode(measured)}
            for (rank, process), measured in sorted(changed, key=lambda item: item[0])
        ]
        table = PIPELINE_MEASUREMENTS.c
        self._upsert(on, PIPELINE_MEASUREMENTS, rows)
        if gone := [pair for pair in old if pair not in profile.processes]:
            is_gone = tuple_(table.rank, table.process).in_(gone)
            on.execute(delete(PIPELINE_MEASUREMENTS).where(table.profile_id == columns["profile_id"], is_gone))

    def _upsert(self, on: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
        if rows:
            on.execute(self._upserts[table.name], rows)


def _upsert(database: Database, table: Table, key: tuple[str, ...]) -> Any:
    statement = database.insert(table)
    values = {column.name: statement.excluded[column.name] for column in table.c if column.name not in key}
    return statement.on_conflict_do_update(index_elements=key, set_=values)


def _name(key: PipelineKey) -> str:
    return f"job {key.job_uid}, recurrence {key.recurrence}, attempt {key.attempt}"


def _of(table: Any, key: PipelineKey) -> tuple[Any, ...]:
    return tuple(table.c[name] == getattr(key, name) for name in ATTEMPT)


def _profile_key(state: PipelineState) -> PipelineProfileKey | None:
    return None if state.profile is None else state.profile.key


def _row(on: Connection, key: PipelineKey, *, lock: bool = False) -> Any:
    query = select(PIPELINES).where(*_of(PIPELINES, key))
    return on.execute(query.with_for_update() if lock else query).one_or_none()


def _load(
    on: Connection, key: PipelineKey, row: Any, known: StoredPipeline | None = None, *, measurements: bool = True
) -> StoredPipeline:
    """The stored state; of a known one only what has changed since is read."""
    since = -1 if known is None else known.revision
    stored = decode(PipelineState, row.body)
    table = PIPELINE_RANKS.c
    found = on.execute(select(table.rank, table.revision).where(*_of(PIPELINE_RANKS, key))).all()
    ranks = {} if known is None else dict(known.state.ranks)
    for gone in ranks.keys() - {number for number, _ in found}:
        del ranks[gone]
    digests = {} if known is None else {digest: part for part, digest in known.parts.items()}
    if any(revision > since for _, revision in found):
        stored_digests = _part_digests(on, key)
        digests = {digest: part for digest, part in digests.items() if digest in stored_digests}
        query = select(PIPELINE_PARTS.c.digest, PIPELINE_PARTS.c.body).where(*_of(PIPELINE_PARTS, key))
        digests |= {
            digest: decode(Part, body)
            for digest, body in on.execute(query.where(PIPELINE_PARTS.c.digest.not_in(list(digests))))
        }
        changed = select(table.rank, table.part, table.body).where(*_of(PIPELINE_RANKS, key), table.revision > since)
        ranks |= {
            number: with_part(decode(PipelineRank, body), digests[part]) for number, part, body in on.execute(changed)
        }
    # If its profile was deleted since, it is empty: the ranks measure again, and the next change creates it again.
    state = replace(stored, ranks=ranks)
    profile_id = None if stored.profile is None else profile_id_of(on, stored.profile.key)
    if profile_id is not None and stored.profile is not None:
        state = _with_stored_profile(on, state, profile_id, stored.profile.key, known, measurements=measurements)
    return StoredPipeline(state, row.revision, profile_id, {part: digest for digest, part in digests.items()})


def _with_stored_profile(
    on: Connection,
    state: PipelineState,
    profile_id: int,
    key: PipelineProfileKey,
    known: StoredPipeline | None,
    *,
    measurements: bool = True,
) -> PipelineState:
    profiles = PIPELINE_PROFILES.c
    digest = on.execute(select(profiles.frontier_digest).where(profiles.id == profile_id)).scalar()
    table = PIPELINE_MEASUREMENTS.c
    query = select(table.body).where(table.profile_id == profile_id)
    processes: dict[tuple[int, str], RankMeasurements] = {}
    frontier = None
    if known is not None and known.profile_id == profile_id and known.state.profile is not None:
        frontier = known.state.frontier
        if digest is None or (frontier is not None and frontier.stored_digest == digest):
            processes = dict(known.state.profile.processes)
            query = query.where(
                table.recurrence == state.key.recurrence,
                table.attempt == state.key.attempt,
                table.revision > known.revision,
            )
        # A new frontier is planned from what all attempts have measured.
    for (body,) in on.execute(query) if measurements else ():
        measured = decode(RankMeasurements, body)
        processes[measured.rank, measured.process] = measured
    if digest is not None and (frontier is None or frontier.stored_digest != digest):
        frontier = decode(
            PipelineFrontier, on.execute(select(profiles.frontier).where(profiles.id == profile_id)).scalar_one()
        )
    return replace(state, profile=PipelineProfile(key, processes), frontier=frontier)


def _write_frontier(on: Connection, profile_id: int | None, frontier: PipelineFrontier) -> None:
    values = {"frontier": encode(frontier), "frontier_digest": frontier.stored_digest}
    on.execute(update(PIPELINE_PROFILES).where(PIPELINE_PROFILES.c.id == profile_id).values(values))


def _part_digests(on: Connection, key: PipelineKey) -> set[str]:
    return set(on.execute(select(PIPELINE_PARTS.c.digest).where(*_of(PIPELINE_PARTS, key))).scalars())


def _delete_unused_parts(on: Connection, key: PipelineKey, parts: Mapping[Part, str]) -> dict[Part, str]:
    """Delete the parts that no rank has any more; returns the others of these."""
    used = select(PIPELINE_RANKS.c.part).where(*_of(PIPELINE_RANKS, key))
    on.execute(delete(PIPELINE_PARTS).where(*_of(PIPELINE_PARTS, key), PIPELINE_PARTS.c.digest.not_in(used)))
    left = _part_digests(on, key)
    return {part: digest for part, digest in parts.items() if digest in left}
