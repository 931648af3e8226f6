"""A job's attempts by recurrence, its next index, its slots in use, and what history limits and learnSince drop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.recurring_training_job_status import LearnSince
from wattloop_operator.domain.names import is_run_request
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.actions import RECURRENCE_DELETED, Action, EmitEvent, WriteJobStatus
from wattloop_operator.reconcile.learning import job_observations

Attempts = tuple[TrainingAttempt, ...]


def recurrences_of(snapshot: Snapshot) -> tuple[Attempts, ...]:
    """The attempts that exist as objects, of each recurrence together, in rising order."""
    ordered = sorted(snapshot.recurrences, key=lambda each: each.order)
    return tuple(tuple(attempts) for _, attempts in itertools.groupby(ordered, key=lambda each: each.spec.index))


def next_index(snapshot: Snapshot) -> int:
    """The index of the next recurrence.

    It is above every index in the objects, the store and the status.
    """
    known = [each.spec.index for each in _created(snapshot)]
    known += [record.recurrence for record in snapshot.records]
    return max(max(known, default=-1) + 1, snapshot.job.status.totals.recurrences)


def latest_slot_time(snapshot: Snapshot) -> datetime | None:
    """The latest scheduled time that was started or skipped, in objects, store and status."""
    status = snapshot.job.status
    known = [each.spec.scheduled_time for each in _created(snapshot) if not is_run_request(each.spec.slot)]
    known += [record.scheduled_at for record in snapshot.records if not is_run_request(record.slot)]
    known += [] if status.last_schedule_time is None else [status.last_schedule_time]
    return max(known, default=None)


def used_slots(snapshot: Snapshot) -> frozenset[str]:
    """The slots that have a recurrence."""
    slots = {each.spec.slot for each in _created(snapshot)}
    return frozenset(slots | {each.slot for each in snapshot.records})


def _created(snapshot: Snapshot) -> tuple[TrainingAttempt, ...]:
    """The recurrences that exist, also without their status, and the deleted ones that the status may not state yet."""
    return *snapshot.recurrences, *snapshot.restored_recurrences, *snapshot.deleted_recurrences


def last_end(snapshot: Snapshot) -> datetime | None:
    """When the latest attempt ended."""
    ends = [record.finished_at for record in snapshot.records]
    ends += [job_observations.ended_at(each) for each in snapshot.recurrences if each.status.result is not None]
    return max(ends, default=None)


def deleted_active_events(snapshot: Snapshot) -> Iterator[EmitEvent]:
    """The events of attempts that a user deleted while the job's status states them as active."""
    job = snapshot.job
    known = {each.recurrence_name for each in snapshot.records} | {each.metadata.name for each in _created(snapshot)}
    for name in job.status.active:
        if name not in known:
            text = f"{name} was deleted while it was active: its workload ends, and nothing is learned from it"
            yield EmitEvent(True, RECURRENCE_DELETED, f"{job.metadata.full_name}: {text}")


def deleted_events(snapshot: Snapshot) -> Iterator[EmitEvent]:
    """The events of attempts that a user deleted and that are remembered."""
    stored = {each.recurrence_name for each in snapshot.records}
    for deleted in snapshot.deleted_recurrences:
        name = deleted.metadata.name
        learned = "what was learned from it is kept" if name in stored else "nothing is learned from it"
        text = f"recurrence {deleted.spec.index} ({name}) was deleted, and not by a history limit; {learned}"
        yield EmitEvent(False, RECURRENCE_DELETED, f"{snapshot.job.metadata.full_name}: {text}", deleted)


def beyond_history_limits(snapshot: Snapshot, open_indices: frozenset[int]) -> Iterator[TrainingAttempt]:
    """Yield the attempts beyond the history limits that the store has, oldest first, but none of open recurrences."""
    stored = {record.order for record in snapshot.records}
    closed = [each for each in recurrences_of(snapshot) if each[0].spec.index not in open_indices]
    reached, failed = (
        [each for each in closed if any(attempt.status.result is Result.REACHED for attempt in each) is wanted]
        for wanted in (True, False)
    )
    spec = snapshot.job.spec
    surplus = reached[: max(len(reached) - spec.successful_runs_history_limit, 0)]
    surplus += failed[: max(len(failed) - spec.failed_runs_history_limit, 0)]
    for attempt in sorted(itertools.chain(*surplus), key=lambda each: each.order):
        if attempt.order in stored or job_observations.is_beyond_bound(snapshot, attempt):
            yield attempt


def learn_since_actions(snapshot: Snapshot) -> tuple[Action, ...]:
    """Forget what was learned before, if `spec.learnSince` has another text; nothing otherwise.

    The status records the text and the index of the next recurrence in one write, before anything else is done.
    So a text is carried out once, at any kill, and applies to the objects and the store alike. Indices rather than
    times: they are not affected by clocks, and a run that was in flight at the change began with the state that is
    to be forgotten.
    """
    job = snapshot.job
    text, before = job.spec.learn_since, job.status.learn_since
    if not text or (before is not None and before.text == text):
        return ()
    index = next_index(snapshot)
    message = (
        f"{job.metadata.full_name}: observations and crashes of the recurrences before {index} are forgotten "
        f"(spec.learnSince {text})"
    )
    status = job.status.model_copy(update={"learn_since": LearnSince(text=text, recurrence=index)})
    # A text that a job is created with forgets nothing.
    events = (EmitEvent(False, "Forgotten", message),) if index else ()
    return *events, WriteJobStatus(status)
