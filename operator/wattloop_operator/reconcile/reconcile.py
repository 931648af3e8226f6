"""One pure function from the state of a job and the time to the actions that are due.

Each result takes every open attempt a step further, records what has ended, starts what is due and updates the status.
`next_actions` is called again after each change and at `ReconcileResult.wake_at`. The same state gives the same result;
a state in which nothing is due gives no actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from wattloop_operator.api.cron import ScheduleError
from wattloop_operator.api.recurring_training_job import ConcurrencyPolicy, MissedRunPolicy
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import (
    Action,
    CreateRecurrence,
    DeleteRecurrence,
    EmitEvent,
    ReconcileResult,
    RecordLateUsage,
    RecordObservation,
    RecordProfile,
    WriteJobStatus,
)
from wattloop_operator.reconcile.attempt.lifecycle import attempt_actions, cancelled
from wattloop_operator.reconcile.job.history_limit import beyond_limits
from wattloop_operator.reconcile.job.readiness import Readiness
from wattloop_operator.reconcile.job.recurrences import (
    Recurrence,
    last_end,
    latest_slot_time,
    next_index,
    recurrences_of,
    taken_slots,
)
from wattloop_operator.reconcile.job.schedule import Slots, slots
from wattloop_operator.reconcile.job.status import MAX_ACTIVE, job_status
from wattloop_operator.reconcile.job.unsupported import unsupported
from wattloop_operator.reconcile.learning import observations
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.naming import slot_of_request, slot_of_time
from wattloop_planner.bandit.policy import NoFeasibleArmError

# How late a start may be with missedRunPolicy Skip before it counts as missed.
SKIP_SECONDS = 60


def next_actions(snapshot: Snapshot, now: datetime) -> ReconcileResult:
    """Decide what to do now.

    Args:
        snapshot: The state of one job.
        now: The time, with a time zone.
    """
    if snapshot.job.metadata.deletion_timestamp is not None:
        return ReconcileResult((), None)
    actions: list[Action] = list(_remember(snapshot))
    wakes: list[datetime] = []
    for recurrence in sorted(snapshot.recurrences, key=lambda each: (each.spec.index, each.spec.attempt)):
        step = attempt_actions(snapshot, recurrence, now)
        actions += step.actions
        wakes += [] if step.wake_at is None else [step.wake_at]
    everything = recurrences_of(snapshot)
    limit = snapshot.job.spec.retry_policy.limit
    open_now = tuple(each for each in everything if each.is_open(limit))
    starts, readiness = _start(snapshot, open_now, now)
    actions += starts
    actions += [DeleteRecurrence(each) for each in beyond_limits(snapshot, frozenset(each.index for each in open_now))]
    status = job_status(snapshot, readiness, frozenset(each.index for each in open_now), now)
    if status != snapshot.job.status:
        actions.append(WriteJobStatus(status))
    wakes += [] if readiness.following is None else [readiness.following]
    return ReconcileResult(tuple(actions), min(wakes, default=None))


def _remember(snapshot: Snapshot) -> Iterator[Action]:
    """Bring the store up to what the objects say."""
    stored = {(record.recurrence, record.attempt) for record in snapshot.records}
    profiled = {profile.key for profile in snapshot.profiles}
    for recurrence in snapshot.recurrences:
        late_usage = observations.late_usage_of(recurrence)
        if late_usage is not None and late_usage not in snapshot.late_usages:
            yield RecordLateUsage(late_usage)
        if recurrence.status.result is None or (recurrence.spec.index, recurrence.spec.attempt) in stored:
            continue
        measured = observations.profile_of(recurrence)
        if measured is not None and measured[0] not in profiled:
            yield RecordProfile(*measured)
        yield RecordObservation(observations.record_of(recurrence))


def _start(snapshot: Snapshot, open_now: tuple[Recurrence, ...], now: datetime) -> tuple[list[Action], Readiness]:
    """Start retries and whatever is due, or say why nothing starts."""
    job = snapshot.job
    try:
        standing_slots = slots(
            job.spec.trigger,
            created=job.metadata.creation_timestamp or now,
            handled=latest_slot_time(snapshot),
            last_end=last_end(snapshot),
            now=now,
        )
    except ScheduleError as error:
        return [], Readiness(ready=False, reason="InvalidSchedule", message=f"spec.trigger.cron.{error}")
    blocked = _blocked(snapshot, open_now)
    if blocked is not None:
        return [], blocked
    ready = Readiness(ready=True, reason="Scheduled", message="", following=standing_slots.following)
    try:
        retries = [_retry(snapshot, each) for each in open_now if each.retry_due(job.spec.retry_policy.limit)]
        if retries:
            return list(retries), ready
        return _due(snapshot, open_now, standing_slots, ready, now)
    except NoFeasibleArmError as error:
        return [
            *_announced_once(snapshot, "NoArmLeft", str(error)),
        ], Readiness(ready=False, reason="NoArmLeft", message=str(error))


def _blocked(snapshot: Snapshot, open_now: tuple[Recurrence, ...]) -> Readiness | None:
    """Why nothing may start, whatever is due."""
    spec = snapshot.job.spec
    if spec.suspend:
        return Readiness(ready=False, reason="Suspended", message="spec.suspend is true; set it to false to go on")
    not_carried_out = unsupported(spec)
    if not_carried_out is not None:
        return Readiness(ready=False, reason="NotSupported", message=not_carried_out)
    if snapshot.refusal:
        return Readiness(ready=False, reason="TemplateRefused", message=snapshot.refusal)
    done = spec.max_recurrences is not None and next_index(snapshot) >= spec.max_recurrences
    if done and not any(each.retry_due(spec.retry_policy.limit) for each in open_now):
        text = f"all {spec.max_recurrences} recurrences of spec.maxRecurrences were started"
        return Readiness(ready=False, reason="AllStarted", message=text)
    return None


def _retry(snapshot: Snapshot, recurrence: Recurrence) -> CreateRecurrence:
    """The next attempt of a recurrence."""
    spec = recurrence.latest.spec
    return CreateRecurrence(decide(snapshot, Attempt(spec.index, spec.attempt + 1, spec.slot, spec.scheduled_time)))


def _due(
    snapshot: Snapshot, open_now: tuple[Recurrence, ...], found: Slots, ready: Readiness, now: datetime
) -> tuple[list[Action], Readiness]:
    """Start the run request or the slot that is due, as the concurrency policy allows."""
    spec = snapshot.job.spec
    request = spec.run_request
    requested = request is not None and _request_is_new(snapshot, request)
    if requested and request is not None:
        attempt = Attempt(next_index(snapshot), 0, slot_of_request(request), now.replace(microsecond=0))
        readiness = replace(ready, last_run_request=request)
    elif found.due is not None:
        late = _too_late(snapshot, found, now)
        if late is not None:
            return list(_missed(snapshot, found, late)), replace(ready, missed=found.missed + 1, last_missed=found.due)
        attempt = Attempt(next_index(snapshot), 0, slot_of_time(found.due), found.due)
        readiness = replace(ready, missed=found.missed)
    else:
        return [], ready
    if open_now and (spec.concurrency_policy is ConcurrencyPolicy.FORBID or spec.trigger.continuous is not None):
        return [], replace(ready, message="the next run waits for the one that is going on")
    if open_now and spec.concurrency_policy is ConcurrencyPolicy.REPLACE:
        return _make_room(snapshot, open_now, now), ready
    if len(open_now) >= MAX_ACTIVE:
        return [], replace(ready, message=f"{len(open_now)} runs are going on; the next one waits for one of them")
    actions: list[Action] = list(_missed(snapshot, found, "")) if not requested and found.missed else []
    return [*actions, CreateRecurrence(decide(snapshot, attempt))], readiness


def _request_is_new(snapshot: Snapshot, request: str) -> bool:
    return request != snapshot.job.status.last_run_request and slot_of_request(request) not in taken_slots(snapshot)


def _too_late(snapshot: Snapshot, found: Slots, now: datetime) -> str | None:
    """Why the due slot is not started any more."""
    spec = snapshot.job.spec
    if found.due is None or spec.trigger.continuous is not None or spec.trigger.once is not None:
        # What has no calendar cannot be late: it starts when it can.
        return None
    late = now - found.due
    deadline = spec.starting_deadline_seconds
    if deadline is not None and late > timedelta(seconds=deadline):
        return f"it is later than startingDeadlineSeconds ({deadline} s)"
    if spec.missed_run_policy is MissedRunPolicy.SKIP and late > timedelta(seconds=deadline or SKIP_SECONDS):
        return "missedRunPolicy is Skip"
    return None


def _make_room(snapshot: Snapshot, open_now: tuple[Recurrence, ...], now: datetime) -> list[Action]:
    actions: list[Action] = []
    for recurrence in open_now:
        if recurrence.latest.status.result is None:
            why = "ended to make room for the next run (concurrencyPolicy Replace)"
            actions.append(cancelled(snapshot, recurrence.latest, why, now))
    return actions


def _missed(snapshot: Snapshot, found: Slots, why: str) -> Iterator[EmitEvent]:
    """Tell once of starts that were missed: they are counted when the slot after them is started or given up."""
    name = f"{snapshot.job.metadata.namespace}/{snapshot.job.metadata.name}"
    if found.missed:
        count = f"{found.missed} or more" if found.missed >= 100 else str(found.missed)
        yield EmitEvent(True, "MissedStarts", f"{name}: {count} starts before {found.due} were missed")
    if why:
        yield EmitEvent(True, "MissedStart", f"{name}: the start at {found.due} was missed: {why}")


def _announced_once(snapshot: Snapshot, reason: str, text: str) -> Iterator[EmitEvent]:
    if not any(each.reason == reason for each in snapshot.job.status.conditions):
        yield EmitEvent(True, reason, f"{snapshot.job.metadata.namespace}/{snapshot.job.metadata.name}: {text}")
