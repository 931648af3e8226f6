"""What a decision is made from: which part of a snapshot, and that part again from what was kept of it."""

from collections.abc import Collection, Sequence

from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrenceStatus
from wattloop_operator.domain.decision_inputs import SourceRecords, StoredDecision
from wattloop_operator.domain.job_identity import history_uid
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import PolicyCache, Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.learning.job_observations import known_profiles, known_records


def inputs_of(snapshot: Snapshot, decided: TrainingAttempt) -> StoredDecision:
    """What an attempt is decided from."""
    index = decided.spec.index
    used = (each for each in snapshot.recurrences if each.status.result is None or each.spec.index == index)
    source, source_records = snapshot.source_job, snapshot.source_records
    return StoredDecision(
        decided=decided,
        job=_job(snapshot.job),
        recurrences=tuple(map(_recurrence, sorted(used, key=lambda each: each.order))),
        records=len(known_records(snapshot)),
        profiles=known_profiles(snapshot),
        source_job=None if source is None else _job(source),
        source_records=SourceRecords(source_records[-1].job_uid, len(source_records), source_records[-1].order)
        if source_records
        else None,
        devices=snapshot.devices,
        runtime_digest=snapshot.runtime_digest,
        measures_limits_by_output=snapshot.measures_limits_by_output,
    )


def snapshot_of(
    inputs: StoredDecision,
    records: Sequence[ObservationRecord],
    source_records: Sequence[ObservationRecord],
    policies: PolicyCache,
) -> Snapshot:
    """The state of a job at a decision, as far as the decision depends on it."""
    return Snapshot(
        job=inputs.job,
        recurrences=inputs.recurrences,
        records=tuple(records),
        profiles=inputs.profiles,
        source_records=tuple(source_records),
        source_job=inputs.source_job,
        devices=inputs.devices,
        runtime_digest=inputs.runtime_digest,
        measures_limits_by_output=inputs.measures_limits_by_output,
        policies=policies,
    )


def records_then(
    inputs: StoredDecision, records: Sequence[ObservationRecord], decided_later: Collection[tuple[int, int]]
) -> tuple[ObservationRecord, ...] | None:
    """The job's records that were known at a decision; None if some are not there any more.

    Every attempt that was decided before had ended, or was in flight.
    """
    in_flight = {each.order for each in inputs.recurrences if each.status.result is None}
    known = tuple(each for each in records if each.order not in in_flight and each.order not in decided_later)
    return known if len(known) == inputs.records else None


def source_records_then(
    inputs: StoredDecision, records: Sequence[ObservationRecord]
) -> tuple[ObservationRecord, ...] | None:
    """The records of the job that a decision learned from; None if they cannot be told from later ones."""
    source = inputs.source_records
    known = () if source is None else tuple(each for each in records if each.order <= source.last)
    return known if len(known) == (0 if source is None else source.count) else None


def _job(job: RecurringTrainingJob) -> RecurringTrainingJob:
    metadata, status = job.metadata, job.status
    return job.model_copy(
        update={
            "metadata": ObjectMeta(name=metadata.name, namespace=metadata.namespace, uid=history_uid(job)),
            "status": RecurringTrainingJobStatus(learn_since=status.learn_since, published=status.published),
        }
    )


def _recurrence(recurrence: TrainingAttempt) -> TrainingAttempt:
    metadata, status = recurrence.metadata, recurrence.status
    return recurrence.model_copy(
        update={
            "metadata": ObjectMeta(name=metadata.name, namespace=metadata.namespace),
            "status": TrainingRecurrenceStatus(
                result=status.result,
                start_time=status.start_time,
                failure_place=status.failure_place,
                epochs=status.epochs,
            ),
            "progress": Progress(),
            "progress_version": 0,
            "reported_at": None,
            "outcome": None,
        }
    )
