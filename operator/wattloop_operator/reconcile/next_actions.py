"""A pure function from the state of a job and the time to the actions that are due.

Each call advances every open attempt, records outcomes in the store, starts what is due and updates
the status. The driver calls `next_actions` again after each change and at
`ReconcileResult.wake_at`. The same state always gives the same actions; a state in which nothing is
due gives none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import (
    Action,
    DeleteRecurrence,
    ReconcileResult,
    RecordLateUsage,
    RecordObservation,
    RecordProfile,
    WriteJobStatus,
)
from wattloop_operator.reconcile.attempt.lifecycle import attempt_actions
from wattloop_operator.reconcile.job.job_conditions import condition_events
from wattloop_operator.reconcile.job.recurrences import beyond_history_limits, deleted_events, forget_actions
from wattloop_operator.reconcile.job.retry import open_recurrences
from wattloop_operator.reconcile.job.start import start_actions
from wattloop_operator.reconcile.job.status import job_status
from wattloop_operator.reconcile.learning import job_observations


def next_actions(snapshot: Snapshot, now: datetime) -> ReconcileResult:
    """Compute the actions that are due now.

    Args:
        snapshot: The state of one job.
        now: The time, with a time zone.
    """
    if snapshot.job.metadata.deletion_timestamp is not None:
        return ReconcileResult(())
    forgotten = forget_actions(snapshot, now)
    if forgotten:
        return ReconcileResult(forgotten)
    actions: list[Action] = list(_record(snapshot))
    wake_times: list[datetime] = []
    for recurrence in sorted(snapshot.recurrences, key=lambda each: each.order):
        due = attempt_actions(snapshot, recurrence, now)
        actions += due.actions
        wake_times += [] if due.wake_at is None else [due.wake_at]
    open_now = open_recurrences(snapshot)
    open_indices = frozenset(each.index for each in open_now)
    starts, readiness = start_actions(snapshot, open_now, now)
    actions += starts
    actions += [DeleteRecurrence(each) for each in beyond_history_limits(snapshot, open_indices)]
    status = job_status(snapshot, readiness, open_indices, now)
    actions += condition_events(snapshot, status.conditions)
    actions += deleted_events(snapshot)
    if status != snapshot.job.status:
        actions.append(WriteJobStatus(status))
    wake_times += [] if readiness.next_start is None else [readiness.next_start]
    return ReconcileResult(tuple(actions), min(wake_times, default=None))


def _record(snapshot: Snapshot) -> Iterator[Action]:
    """Record in the store what the objects contain and the store does not."""
    stored = {(record.recurrence, record.attempt) for record in snapshot.records}
    profiled = {profile.key for profile in snapshot.profiles}
    for recurrence in snapshot.recurrences:
        if job_observations.is_beyond_bound(snapshot, recurrence):
            continue
        late_usage = job_observations.late_usage_of(recurrence)
        if late_usage is not None and late_usage not in snapshot.late_usages:
            yield RecordLateUsage(late_usage)
        if recurrence.status.result is None or recurrence.order in stored:
            continue
        measured = job_observations.profile_of(recurrence)
        if measured is not None and measured.key not in profiled:
            yield RecordProfile(measured)
        yield RecordObservation(job_observations.record_of(recurrence))
