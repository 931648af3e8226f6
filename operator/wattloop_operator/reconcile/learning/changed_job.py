"""What earlier attempts still say after their job has changed.

An attempt with another target still gives the cost of an epoch. If its target had the same metric and
direction, the curve of the metric also says when the attempt reached the present target, or that it
takes more epochs. A policy without a model of bounds gets no such attempts: it would give up a batch
size for having stopped at an easier target. A crash counts only while the job has the template that
crashed, so that a corrected template, or another image in it, frees a job whose batch sizes all
crashed. What the user forgot by `spec.policy.forget` says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from wattloop_operator.api.attempt import Result
from wattloop_operator.api.policy import PolicyName
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob, RecurringTrainingJobSpec
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot, once_per_snapshot
from wattloop_operator.reconcile.learning.observations import (
    known_profiles,
    known_records,
    observations,
    target_values,
)
from wattloop_operator.reconcile.learning.power_limit import at_policy_limits
from wattloop_planner.observations import Observation, Outcome
from wattloop_planner.retargeting import retargeted


@dataclass(frozen=True)
class KnownAttempts:
    """What the attempts of a job say about its next one.

    Attributes:
        kept: The records that the user did not forget, ordered by (recurrence, attempt).
        observations: The observations of those attempts that count, in the same order.
        converted: Those observations that are of attempts with another target, converted to the
            present one by the attempts' curves.
    """

    kept: tuple[ObservationRecord, ...]
    observations: tuple[Observation, ...]
    converted: tuple[Observation, ...]


@once_per_snapshot
def known_attempts(snapshot: Snapshot) -> KnownAttempts:
    """What the attempts of a job say about its next one, given its present spec and status."""
    spec = snapshot.job.spec
    kept = not_forgotten(snapshot.job, known_records(snapshot))
    counted, converted = [], []
    for record, observation in _with_records(at_policy_limits(spec, kept, known_profiles(snapshot))):
        if observation.outcome is Outcome.CRASHED:
            if not _crashed_with_other_template(record, spec.template.digest):
                # A crash says nothing about the target.
                counted.append(replace(observation, curve=None))
            continue
        if record.target == target_values(spec.objective.target):
            counted.append(observation)
            continue
        with_target = _converted(record, observation, spec)
        if with_target is not None:
            converted.append(with_target)
        counted.append(with_target or replace(observation, curve=None, other_target=True))
    return KnownAttempts(kept, tuple(counted), tuple(converted))


@once_per_snapshot
def source_observations(snapshot: Snapshot) -> tuple[Observation, ...]:
    """The observations of the job that this one learns from (`spec.batchSize.learnFrom`), as far as they apply.

    They are the attempts towards this job's metric, direction and threshold that its user did not
    forget there; the number of consecutive evaluations may differ. Attempts towards another
    threshold are converted by their curves.
    """
    spec, source = snapshot.job.spec, snapshot.source_job
    found = []
    for record, observation in _with_records(snapshot.source_records, from_other_job=True):
        # A deleted job of the same name has recurrences with the same indices.
        if source is not None and record.job_uid == source.metadata.uid and not not_forgotten(source, (record,)):
            continue
        if observation.outcome is Outcome.CRASHED:
            continue
        if record.target is not None and record.target[:3] == target_values(spec.objective.target)[:3]:
            found.append(observation)
        elif (converted := _converted(record, observation, spec)) is not None:
            found.append(converted)
    return tuple(found)


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


def _with_records(
    records: Iterable[ObservationRecord], *, from_other_job: bool = False
) -> Iterator[tuple[ObservationRecord, Observation]]:
    for record in records:
        for observation in observations((record,), from_other_job=from_other_job):
            yield record, observation


def _converted(
    record: ObservationRecord, observation: Observation, spec: RecurringTrainingJobSpec
) -> Observation | None:
    """What an attempt with another target says of a job's present one; None if nothing."""
    target = spec.objective.target
    if spec.policy.name is not PolicyName.THOMPSON_SAMPLING:
        return None
    if (record.target_metric, record.target_direction) != (target.metric, target.direction.value):
        return None
    return retargeted(observation, target.run_target)


def _crashed_with_other_template(record: ObservationRecord, digest: str) -> bool:
    # A crash with an unknown template counts: an older version of Wattloop recorded it.
    return record.result == Result.CRASHED.value and record.template_digest not in (None, digest)
