"""Recurrences whose observations the database no longer has, as after its loss, and what that costs the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wattloop_operator.domain.job_identity import history_uid, is_restored, is_unseen_restored
from wattloop_operator.domain.names import index_in_name
from wattloop_operator.domain.records import MAX_OBSERVATIONS_OF_JOB
from wattloop_operator.domain.snapshot import Snapshot, once_per_snapshot
from wattloop_operator.reconcile.job.recurrences import next_index

HISTORY_LOST = "HistoryLost"


@dataclass(frozen=True)
class Unobserved:
    """Numbers of recurrences that were started, have no object and no observation.

    Attributes:
        deleted: Somebody deleted them while they were active, so that they never had an observation.
        lost: The database has lost their observations.
    """

    deleted: int
    lost: int


@once_per_snapshot
def unobserved(snapshot: Snapshot) -> Unobserved:
    """The recurrences that nothing is known of.

    Indices have no gaps. Those below the oldest attempt that the store keeps of a job with many are left out.
    """
    before = snapshot.job.status
    records = snapshot.records
    oldest = records[0].recurrence if len(records) >= MAX_OBSERVATIONS_OF_JOB else 0
    known = {each.spec.index for each in snapshot.recurrences} | {each.recurrence for each in records}
    missing = next_index(snapshot) - oldest - sum(each >= oldest for each in known)
    if is_unseen_restored(snapshot.job):
        # How many were deleted is lost with the status.
        lost = len({each.spec.index for each in snapshot.restored_recurrences} - known) if records else missing
        return Unobserved(missing - lost, lost)
    if before.totals.deleted is None:
        # An earlier version did not tell them apart.
        return Unobserved(missing, 0)
    of_names = (index_in_name(snapshot.job.metadata.name, each) for each in before.active)
    recent = {*of_names, *range(before.totals.recurrences, next_index(snapshot))}
    deleted = before.totals.deleted + len(recent - known - {None})
    return Unobserved(deleted, max(missing - deleted, 0))


def history_lost(snapshot: Snapshot) -> Iterator[tuple[str, bool, str, str]]:
    """That observations are lost, and what that costs; nothing if none is."""
    lost, uid = unobserved(snapshot).lost, history_uid(snapshot.job)
    if is_restored(snapshot.job) and not snapshot.records and not lost:
        text = (
            f"the job was restored, and the database has nothing of its history, which has the UID {uid}: nothing is "
            "learned from the recurrences before; restore a backup of the database, which ends this condition"
        )
        yield HISTORY_LOST, True, "NotRestored", text
    if lost:
        text = (
            f"the database has no observation of {lost} recurrence(s) any more, as after its loss: nothing is learned "
            "from them, totals and savings lack what they used, and batch sizes and power limits that they tried may "
            "be tried again; restore a backup of the database, which ends this condition"
        )
        yield HISTORY_LOST, True, "ObservationsMissing", text
