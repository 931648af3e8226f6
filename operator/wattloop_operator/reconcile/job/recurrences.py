"""A job's attempts by recurrence, its next index, its slots in use, and what history limits and learnSince drop.

A job that was restored from a backup takes its recurrences over. Nothing that had been done is done again.
"""

import itertools
from collections.abc import Iterator
from datetime import datetime

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.recurring_training_job_status import LearnSince
from wattloop_operator.api.training_recurrence import Attribution, TrainingRecurrenceStatus, Usage
from wattloop_operator.domain.job_identity import controller_uid, history_uid, is_restored, is_unseen_restored
from wattloop_operator.domain.names import is_run_request
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.actions import RECURRENCE_DELETED, Action, AdoptRecurrence, EmitEvent, WriteJobStatus
from wattloop_operator.reconcile.attempt.attempt_conditions import final_conditions
from wattloop_operator.reconcile.energy.attempt_usage import usage_status
from wattloop_operator.reconcile.learning import job_observations

Attempts = tuple[TrainingAttempt, ...]
FROM_THE_DATABASE = "restored from the database, which has no message of the attempt"
RAN_AT_THE_BACKUP = (
    "restored from a backup that was made while it ran: how it ended is not known, and it is not repeated"
)
# The generation of an object that nobody has changed since it was created.
FIRST_GENERATION = 1


def recurrences_of(snapshot: Snapshot) -> tuple[Attempts, ...]:
    """The attempts that exist as objects, of each recurrence together, in rising order."""
    ordered = sorted(snapshot.recurrences, key=lambda each: each.order)
    return tuple(tuple(attempts) for _, attempts in itertools.groupby(ordered, key=lambda each: each.spec.index))


def next_index(snapshot: Snapshot) -> int:
    """The index of the next recurrence. It is above every index in the objects, the store and the status."""
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


def adoption_actions(snapshot: Snapshot, now: datetime) -> Iterator[Action]:
    """The recurrences of the job's history that it takes over: those of which an object or the store has a status.

    Of another one, which was restored without its status, only the index and the slot count. One that ran when the
    backup was made is not repeated: it may have ended since.
    """
    uid = snapshot.job.metadata.uid
    for each in snapshot.recurrences:
        if controller_uid(each) != uid:
            yield AdoptRecurrence(each)
    records = {each.order: each for each in snapshot.records} if snapshot.restored_recurrences else {}
    for each in snapshot.restored_recurrences:
        record = records.get(each.order)
        if record is not None:
            yield AdoptRecurrence(each, _status_of(snapshot, each, record, now))
        elif each.status.conditions:
            yield AdoptRecurrence(
                each,
                each.status.model_copy(
                    update={
                        "conditions": final_conditions(each, Result.CANCELLED, RAN_AT_THE_BACKUP, now),
                        "completion_time": now,
                        **usage_status(each.spec, each.progress, None, snapshot.tariff),
                        "result": Result.CANCELLED,
                        "message": RAN_AT_THE_BACKUP,
                    }
                ),
            )


def restored_events(snapshot: Snapshot) -> Iterator[EmitEvent]:
    """The event of a job that was restored without its status, before its first status is written."""
    job = snapshot.job
    if is_unseen_restored(job):
        request = job.spec.run_request
        done = f"; spec.runRequest {request!r} counts as done" if request else ""
        text = f"restored: it goes on with the history of the job with UID {history_uid(job)}{done}"
        yield EmitEvent(False, "Restored", f"{job.metadata.full_name}: {text}")


def counts_are_lost(snapshot: Snapshot) -> bool:
    """Whether nobody knows how many recurrences of a restored job were started.

    It is so until somebody changes the job, who then says by spec.maxRecurrences how many are left.
    """
    job = snapshot.job
    return is_restored(job) and next_index(snapshot) == 0 and job.metadata.generation == FIRST_GENERATION


def _status_of(
    snapshot: Snapshot, recurrence: TrainingAttempt, record: ObservationRecord, now: datetime
) -> TrainingRecurrenceStatus:
    result = Result(record.result)
    metric = None if record.metric is None else to_decimal(record.metric)
    progress = Progress(epoch=to_decimal(record.epochs), metric=metric)
    usage = None
    if record.time_seconds:
        usage = Usage(
            gpu_energy_joules=to_decimal(record.energy_joules),
            duration_seconds=to_decimal(record.time_seconds),
            devices=record.gpu_count,
            gpu_product=record.gpu_product,
            attribution=Attribution(record.attribution),
            max_power_limit_watts=round(record.max_power_watts) or None,
        )
    return TrainingRecurrenceStatus.model_validate(
        {
            "conditions": final_conditions(recurrence, result, FROM_THE_DATABASE, now),
            "image_digest": record.image_digest,
            "completion_time": record.finished_at,
            **usage_status(recurrence.spec, progress, usage, snapshot.tariff),
            "result": result,
            "epochs": progress.epoch,
            "message": FROM_THE_DATABASE,
        }
    )
