"""What earlier attempts still say after their job has changed.

An attempt with another target still gives the cost of an epoch, but neither epochs to the target
nor a saving. A crash counts only while the job has the template that crashed, so that a corrected
template, or another image in it, frees a job whose batch sizes all crashed. What the user forgot by
`spec.policy.forget` says nothing. The same applies to the attempts of another job (`learnFrom`), of which
only the epochs are used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wattloop_operator.api.attempt import Result
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob, RecurringTrainingJobSpec
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.observations import observations, target_values
from wattloop_planner.observations import Observation, Outcome


def current_observations(job: RecurringTrainingJob, records: Iterable[ObservationRecord]) -> tuple[Observation, ...]:
    """The observations of a job that its next decision is based on.

    Args:
        job: The job with its present spec and status.
        records: The records of its attempts, ordered by (recurrence, attempt).
    """
    spec = job.spec
    digest, target = spec.template.digest, target_values(spec.objective.target)
    found = []
    for record in not_forgotten(job, records):
        if _crashed_with_other_template(record, digest):
            continue
        for each in observations((record,)):
            # A crash says nothing about the target.
            other_target = each.outcome is not Outcome.CRASHED and record.target != target
            found.append(replace(each, other_target=True) if other_target else each)
    return tuple(found)


def source_observations(snapshot: Snapshot) -> tuple[Observation, ...]:
    """The observations of the job that this one learns from (`spec.batchSize.learnFrom`), as far as they apply.

    They are the attempts towards this job's metric, direction and threshold that its user did not
    forget there. The number of consecutive evaluations may differ.
    """
    target, source = target_values(snapshot.job.spec.objective.target)[:3], snapshot.source_job
    records = [each for each in snapshot.source_records if each.target is not None and each.target[:3] == target]
    if source is not None:
        # A deleted job of the same name has recurrences with the same indices.
        own = [each for each in records if each.job_uid == source.metadata.uid]
        records = [each for each in records if each.job_uid != source.metadata.uid] + list(not_forgotten(source, own))
    return tuple(each for each in observations(records, from_other_job=True) if each.outcome is not Outcome.CRASHED)


def not_forgotten(job: RecurringTrainingJob, records: Iterable[ObservationRecord]) -> tuple[ObservationRecord, ...]:
    """The records that the user did not forget."""
    forgotten = job.status.forgotten
    if forgotten is None:
        return tuple(records)
    before = {each.batch_size: each.before_recurrence for each in forgotten.batch_sizes}
    everything = forgotten.before_recurrence
    return tuple(each for each in records if each.recurrence >= max(everything, before.get(each.batch_size, 0)))


def with_current_target(
    spec: RecurringTrainingJobSpec, records: Iterable[ObservationRecord]
) -> tuple[ObservationRecord, ...]:
    """The records of the attempts that trained towards the job's present target."""
    target = target_values(spec.objective.target)
    return tuple(record for record in records if record.target == target)


def _crashed_with_other_template(record: ObservationRecord, digest: str) -> bool:
    # A crash with an unknown template counts: an older version of Wattloop recorded it.
    return record.result == Result.CRASHED.value and record.template_digest not in (None, digest)
