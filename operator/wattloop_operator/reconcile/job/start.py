"""Starts: which retry, run request or scheduled slot starts now, or why nothing starts.

A start may be blocked by the job itself (suspended, complete, a refused template, output that this
operator does not read) or by its concurrency policy.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import wrong_parameters
from wattloop_operator.api.cron import ScheduleError, schedule_times, time_zone
from wattloop_operator.api.recurring_training_job import ConcurrencyPolicy, RecurringTrainingJobSpec
from wattloop_operator.api.reporting_source import FILE_NOT_IN_CLUSTER, ReportingSource
from wattloop_operator.domain.job_identity import is_unseen_restored
from wattloop_operator.domain.names import slot_of_request, slot_of_time
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_output import pattern_problem
from wattloop_operator.reconcile.actions import Action, CreateRecurrence, EmitEvent
from wattloop_operator.reconcile.attempt.lifecycle import write_outcome
from wattloop_operator.reconcile.attempt.outcome import Ended
from wattloop_operator.reconcile.job.recurrences import (
    Attempts,
    counts_are_lost,
    last_end,
    latest_slot_time,
    next_index,
    used_slots,
)
from wattloop_operator.reconcile.job.retry import MISTAKES, is_retry_due, retry_actions, wait_after_mistakes
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.learning.known_inputs import inputs_of
from wattloop_planner.bandit.policy import NoFeasibleArmError

MAX_MISSED_COUNTED = 100
# 0.3 MB.
MAX_REMEMBERED_SLOTS = 1024


@dataclass(frozen=True)
class Slots:
    """The due and the next slot of a job.

    Attributes:
        due: The latest slot that has passed and was not handled; None if nothing is due.
        missed: How many slots before `due` were not handled either, counted up to 100. They are not
            made up for.
        next_slot: The next slot; None if its time is not known.
    """

    due: datetime | None
    missed: int
    next_slot: datetime | None


def find_slots(
    spec: RecurringTrainingJobSpec,
    *,
    created: datetime,
    handled: datetime | None,
    last_end: datetime | None,
    now: datetime,
) -> Slots:
    """Find the slot that is due.

    `created`: when the job was created; no slot is earlier. `handled`: the latest slot that was started or skipped;
    None if there is none. It is not due again if the clock jumps back.

    Raises:
        ScheduleError: The schedule or its time zone is invalid.
    """
    # The job exists, so its creation has passed, even if this clock is behind the API server's.
    now = max(now, created)
    if spec.schedule is not None:
        return _cron_slots(spec.schedule, spec.time_zone, since=max(created, handled or created), now=now)
    if not spec.continuous:
        return Slots(None, 0, None)
    slot = created if handled is None else max(handled + timedelta(seconds=1), last_end or handled)
    slot = slot.replace(microsecond=0)
    return Slots(slot, 0, None) if slot <= now else Slots(None, 0, slot)


def _cron_slots(schedule: str, time_zone_name: str, *, since: datetime, now: datetime) -> Slots:
    next_slot = _first(schedule, time_zone_name, max(since, now), backwards=False)
    # Backwards iteration excludes its start. Starting one second later includes a slot of the
    # current second.
    due = _first(schedule, time_zone_name, now.replace(microsecond=0) + timedelta(seconds=1), backwards=True)
    if due is None or due <= since:
        return Slots(None, 0, next_slot)
    missed = 0
    for slot in schedule_times(schedule, time_zone(time_zone_name), since):
        if slot.astimezone(UTC) >= due or missed == MAX_MISSED_COUNTED:
            break
        missed += 1
    return Slots(due, missed, next_slot)


def _first(schedule: str, time_zone_name: str, start: datetime, *, backwards: bool) -> datetime | None:
    # Slots are whole minutes, so all starts of a minute have the same one.
    minute = start.astimezone(UTC).replace(second=0, microsecond=0)
    if backwards and minute != start:
        minute += timedelta(minutes=1)
    return _beside(schedule, time_zone_name, minute, backwards)


@lru_cache(maxsize=MAX_REMEMBERED_SLOTS)
def _beside(schedule: str, time_zone_name: str, minute: datetime, backwards: bool) -> datetime | None:
    """The slot next to a minute. Many jobs share a schedule, and each looks for its slots again and again."""
    first = next(iter(schedule_times(schedule, time_zone(time_zone_name), minute, backwards=backwards)), None)
    return None if first is None else first.astimezone(UTC)


MAX_ACTIVE = 64
# Reasons for starting nothing.
SUSPENDED = "Suspended"
ALL_STARTED = "AllStarted"
NO_ARM_LEFT = "NoArmLeft"
HISTORY_UNKNOWN = "HistoryUnknown"
# Those that a change of what is trained ends at once.
CORRECTED_BY_A_CHANGE = MISTAKES | {NO_ARM_LEFT}
MISTAKE = (
    "the training fails at its start or by its script, or reports nothing, as status.message of the latest "
    "TrainingRecurrence shows; fix it. A change of spec.template or a run request starts it at once, a change of "
    "its training runtime within half a minute"
)
CRASHES_COUNT = "Crashes count until spec.template, its training runtime or spec.learnSince changes"
COUNTS_LOST = (
    "the job was restored, and neither the database nor an object tells how many of its recurrences were started; set "
    "spec.maxRecurrences to the number that is left, or restore the database and then the job again"
)
OUTPUT_NOT_READ = (
    "spec.reporting.source Logs: this operator does not read the logs of pods; start it with --read-pod-logs yes (in "
    "the chart, operator.readPodLogs: true)"
)


@dataclass(frozen=True)
class Readiness:
    """Whether further recurrences start, and when.

    Attributes:
        reason: The reason, as one CamelCase word.
        message: The reason as a sentence, with a remedy.
        next_start: When the next recurrence starts; None if that is not known.
    """

    ready: bool
    reason: str
    message: str
    next_start: datetime | None = None
    missed: int = 0
    last_missed: datetime | None = None
    last_run_request: str | None = None


def start_actions(snapshot: Snapshot, open_now: tuple[Attempts, ...], now: datetime) -> tuple[list[Action], Readiness]:
    """Compute which starts are due, and whether and when further recurrences start."""
    job = snapshot.job
    wrong = wrong_parameters(job.spec.parameters, job.spec.batch_size)
    if wrong is not None:
        return [], Readiness(ready=False, reason="InvalidParameters", message=str(wrong))
    try:
        slots = find_slots(
            job.spec,
            created=job.metadata.creation_timestamp or now,
            handled=latest_slot_time(snapshot),
            last_end=last_end(snapshot),
            now=now,
        )
    except ScheduleError as error:
        return [], Readiness(ready=False, reason="InvalidSchedule", message=f"spec.{error}")
    blocked = _blocked(snapshot, open_now) or _wait_after_mistakes(snapshot, open_now, now)
    if blocked is not None:
        return [], blocked
    ready = Readiness(ready=True, reason="Scheduled", message="", next_start=slots.next_slot)
    try:
        retries = retry_actions(snapshot, open_now)
        if retries:
            return list(retries), ready
        return _start_due(snapshot, open_now, slots, ready, now)
    except NoFeasibleArmError as error:
        message = f"{error}. {CRASHES_COUNT}"
        is_stated = any(each.reason == NO_ARM_LEFT for each in job.status.conditions)
        event = EmitEvent(True, NO_ARM_LEFT, f"{job.metadata.full_name}: {message}")
        return [] if is_stated else [event], Readiness(False, NO_ARM_LEFT, message)


def _blocked(snapshot: Snapshot, open_now: tuple[Attempts, ...]) -> Readiness | None:
    spec = snapshot.job.spec
    if spec.suspend:
        return Readiness(ready=False, reason=SUSPENDED, message="spec.suspend is true; set it to false to resume")
    unreadable = _unreadable_output(snapshot)
    if unreadable is not None:
        return unreadable
    if snapshot.refusal:
        return Readiness(ready=False, reason="TemplateRejected", message=snapshot.refusal)
    if spec.max_recurrences is not None and counts_are_lost(snapshot):
        return Readiness(ready=False, reason=HISTORY_UNKNOWN, message=COUNTS_LOST)
    done = spec.max_recurrences is not None and next_index(snapshot) >= spec.max_recurrences
    if done and not any(is_retry_due(snapshot, each) for each in open_now):
        given = snapshot.recurrences_option or "spec.maxRecurrences"
        text = f"all {spec.max_recurrences} recurrences of {given} were started"
        return Readiness(ready=False, reason=ALL_STARTED, message=text)
    return None


def _wait_after_mistakes(snapshot: Snapshot, open_now: tuple[Attempts, ...], now: datetime) -> Readiness | None:
    if open_now or is_new_request(snapshot) or not snapshot.job.spec.continuous:
        return None
    wait = wait_after_mistakes(snapshot)
    if wait is None or wait[1] <= now:
        return None
    return Readiness(False, wait[0].value, MISTAKE, next_start=wait[1])


def _unreadable_output(snapshot: Snapshot) -> Readiness | None:
    reporting = snapshot.job.spec.reporting
    if reporting.source is ReportingSource.LOGS and not snapshot.reads_output:
        return Readiness(ready=False, reason="NotSupported", message=OUTPUT_NOT_READ)
    if reporting.source is ReportingSource.FILE and not snapshot.reads_files:
        return Readiness(ready=False, reason="NotSupported", message=FILE_NOT_IN_CLUSTER)
    problem = pattern_problem(reporting)
    if problem is not None:
        return Readiness(ready=False, reason="InvalidPattern", message=f"spec.reporting.pattern: {problem}")
    return None


def _start_due(
    snapshot: Snapshot, open_now: tuple[Attempts, ...], slots: Slots, ready: Readiness, now: datetime
) -> tuple[list[Action], Readiness]:
    spec = snapshot.job.spec
    requested = is_new_request(snapshot)
    if requested:
        attempt = Attempt(next_index(snapshot), 0, slot_of_request(spec.run_request), now.replace(microsecond=0))
        readiness = replace(ready, last_run_request=spec.run_request)
    elif slots.due is not None:
        late = _too_late(snapshot, slots, now)
        if late is not None:
            missed = replace(ready, missed=slots.missed + 1, last_missed=slots.due)
            return list(_missed_events(snapshot, slots, late)), missed
        attempt = Attempt(next_index(snapshot), 0, slot_of_time(slots.due), slots.due)
        readiness = replace(ready, missed=slots.missed)
    else:
        return [], ready
    if open_now and (spec.concurrency_policy is ConcurrencyPolicy.FORBID or spec.continuous):
        return [], replace(ready, message=_waiting_message(snapshot, open_now))
    if open_now and spec.concurrency_policy is ConcurrencyPolicy.REPLACE:
        running = (each[-1] for each in open_now if each[-1].status.result is None)
        reason = "cancelled to start the next run (concurrencyPolicy Replace)"
        return [write_outcome(snapshot, each, Ended(Result.CANCELLED, reason), now) for each in running], ready
    if len(open_now) >= MAX_ACTIVE:
        return [], replace(ready, message=f"{len(open_now)} runs are active; the next one waits for one of them to end")
    actions: list[Action] = list(_missed_events(snapshot, slots, "")) if not requested and slots.missed else []
    decided = decide(snapshot, attempt)
    return [*actions, CreateRecurrence(decided, inputs_of(snapshot, decided))], readiness


def is_new_request(snapshot: Snapshot) -> bool:
    """Whether the job requests a run that was not started yet."""
    request = snapshot.job.spec.run_request
    if not request or request == snapshot.job.status.last_run_request or is_unseen_restored(snapshot.job):
        return False
    return slot_of_request(request) not in used_slots(snapshot)


def _waiting_message(snapshot: Snapshot, open_now: tuple[Attempts, ...]) -> str:
    latest = open_now[0][-1]
    continuous = snapshot.job.spec.continuous
    given = snapshot.recurrences_option or "spec.continuous"
    why = f"{given} has one run at a time" if continuous else "spec.concurrencyPolicy is Forbid"
    return f"the next run waits for recurrence {latest.spec.index} ({latest.metadata.name}) to end, because {why}"


def _too_late(snapshot: Snapshot, slots: Slots, now: datetime) -> str | None:
    spec = snapshot.job.spec
    if slots.due is None or spec.continuous:
        # A job without a calendar cannot be late: it starts as soon as possible.
        return None
    late = now - slots.due
    deadline = spec.starting_deadline_seconds
    if deadline is not None and late > timedelta(seconds=deadline):
        return f"it is later than startingDeadlineSeconds ({deadline} s)"
    return None


def _missed_events(snapshot: Snapshot, slots: Slots, reason: str) -> Iterator[EmitEvent]:
    """Report missed starts once. They are counted when the slot after them is started or skipped."""
    name = snapshot.job.metadata.full_name
    if slots.missed:
        count = f"{slots.missed} or more" if slots.missed >= MAX_MISSED_COUNTED else str(slots.missed)
        yield EmitEvent(True, "MissedStarts", f"{name}: {count} starts before {slots.due} were missed")
    if reason:
        yield EmitEvent(True, "MissedStart", f"{name}: the start at {slots.due} was missed: {reason}")
