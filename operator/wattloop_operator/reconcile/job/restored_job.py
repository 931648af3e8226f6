"""A job whose object was restored from a backup: what counts as done, and the recurrences that it takes over.

Its objects may lack their statuses. Nothing that had been done is done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import Attribution, TrainingRecurrenceStatus, Usage
from wattloop_operator.domain.job_identity import controller_uid, history_uid, is_restored, is_unseen_restored
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.actions import Action, AdoptRecurrence, EmitEvent
from wattloop_operator.reconcile.attempt.attempt_conditions import final_conditions
from wattloop_operator.reconcile.energy.attempt_usage import usage_status
from wattloop_operator.reconcile.job.recurrences import next_index

FROM_THE_DATABASE = "restored from the database, which has no message of the attempt"
RAN_AT_THE_BACKUP = (
    "restored from a backup that was made while it ran: how it ended is not known, and it is not repeated"
)
# The generation of an object that nobody has changed since it was created.
FIRST_GENERATION = 1


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
