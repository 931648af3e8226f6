"""A pure function from the state of a job and the time to the actions that are due.

The driver calls `next_actions` after each change and at `ReconcileResult.wake_at`. The same state always gives the
same actions; a state in which nothing is due gives none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import (
    Action,
    AnnotateHistory,
    CreateRecurrence,
    DeleteRecurrence,
    ReconcileResult,
    RecordLateUsage,
    RecordObservation,
    RecordProfile,
    StartWorkload,
    WriteJobStatus,
)
from wattloop_operator.reconcile.attempt.lifecycle import attempt_actions
from wattloop_operator.reconcile.job.job_conditions import condition_events
from wattloop_operator.reconcile.job.recurrences import (
    adoption_actions,
    beyond_history_limits,
    deleted_active_events,
    deleted_events,
    learn_since_actions,
    restored_events,
)
from wattloop_operator.reconcile.job.retry import open_recurrences
from wattloop_operator.reconcile.job.start import CORRECTED_BY_A_CHANGE, Readiness, start_actions
from wattloop_operator.reconcile.job.status import job_status
from wattloop_operator.reconcile.learning import job_observations

# Nothing reports that a training runtime has changed.
RUNTIME_RECHECK = timedelta(seconds=10)


def next_actions(snapshot: Snapshot, now: datetime, *, start_fails: bool = False) -> ReconcileResult:
    """Compute the actions that are due now.

    `now`: the time, with a time zone. `start_fails`: whether a start cannot be carried out now, so that no call after
    it writes the status.
    """
    if snapshot.job.metadata.deletion_timestamp is not None:
        return ReconcileResult(())
    if snapshot.unannotated:
        # Before anything is done: a backup of the object must have it.
        return ReconcileResult((AnnotateHistory(),))
    forgotten = learn_since_actions(snapshot)
    if forgotten:
        return ReconcileResult(forgotten)
    actions: list[Action] = [*_record(snapshot), *adoption_actions(snapshot, now)]
    wake_times: list[datetime] = []
    for recurrence in sorted(snapshot.recurrences, key=lambda each: each.order):
        due = attempt_actions(snapshot, recurrence, now)
        actions += due.actions
        wake_times += [] if due.wake_at is None else [due.wake_at]
    open_now = open_recurrences(snapshot)
    open_indices = frozenset(each[0].spec.index for each in open_now)
    starts, readiness = start_actions(snapshot, open_now, now)
    if start_fails:
        # The start that succeeds states its run request and the slots that were missed before it.
        starts = [] if readiness.missed else starts
        readiness = replace(readiness, missed=0, last_missed=None, last_run_request=None)
    actions += starts
    actions += [DeleteRecurrence(each) for each in beyond_history_limits(snapshot, open_indices)]
    if start_fails or not _status_can_follow(snapshot, actions, readiness):
        status = job_status(snapshot, readiness, open_indices, now)
        actions += restored_events(snapshot)
        actions += condition_events(snapshot, status.conditions)
        actions += deleted_active_events(snapshot)
        if status != snapshot.job.status:
            actions.append(WriteJobStatus(status))
        # Their Events end the memory of them. The status has to state their slots before.
        actions += deleted_events(snapshot)
    wake_times += [] if readiness.next_start is None else [readiness.next_start]
    if readiness.reason in CORRECTED_BY_A_CHANGE and snapshot.runtime_digest != "":
        wake_times.append(now + RUNTIME_RECHECK)
    return ReconcileResult(tuple(actions), min(wake_times, default=None))


def _status_can_follow(snapshot: Snapshot, actions: Sequence[Action], readiness: Readiness) -> bool:
    """Whether the job's status is written once for a start, with that of its recurrence.

    The call after the start computes both from what exists then. It would not know of missed slots and a run request.
    A start that the status does not state yet waits for no further one.
    """
    starts_only = bool(actions) and all(isinstance(each, CreateRecurrence | StartWorkload) for each in actions)
    loses_nothing = not readiness.missed and readiness.last_run_request is None
    return starts_only and loses_nothing and not _is_start_unstated(snapshot)


def _is_start_unstated(snapshot: Snapshot) -> bool:
    active = set(snapshot.job.status.active)
    running = (each for each in snapshot.recurrences if each.status.result is None)
    return any(each.metadata.name not in active and snapshot.was_started(each) for each in running)


def _record(snapshot: Snapshot) -> Iterator[Action]:
    stored = {record.order: record for record in snapshot.records}
    profiled = {profile.key for profile in snapshot.profiles}
    for recurrence in snapshot.recurrences:
        if job_observations.is_beyond_bound(snapshot, recurrence):
            continue
        if recurrence.status.result is None:
            continue
        if recurrence.order in stored:
            late_usage = job_observations.late_usage_of(recurrence, stored[recurrence.order])
            if late_usage is not None and late_usage not in snapshot.late_usages:
                yield RecordLateUsage(late_usage)
            continue
        measured = job_observations.power_profile_of(recurrence)
        if measured is not None and measured.key not in profiled:
            yield RecordProfile(measured)
        records = job_observations.known_records(snapshot)
        yield RecordObservation(next(each for each in records if each.order == recurrence.order))
