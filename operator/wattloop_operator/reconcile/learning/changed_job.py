"""What earlier attempts still say after their job has changed.

A crash counts only while the job has the template that crashed, so that a corrected template, or
another image in it, frees a job whose batch sizes all crashed.
"""

from __future__ import annotations

from collections.abc import Iterable

from wattloop_operator.api.attempt import Result
from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.learning import observations
from wattloop_planner.observations import Observation


def current_observations(
    spec: RecurringTrainingJobSpec, records: Iterable[ObservationRecord]
) -> tuple[Observation, ...]:
    """The observations of a job that its next decision is based on.

    Args:
        spec: The job's present spec.
        records: The records of its attempts, ordered by (recurrence, attempt).
    """
    digest = spec.template.digest
    return observations.observations(each for each in records if not _crashed_with_other_template(each, digest))


def _crashed_with_other_template(record: ObservationRecord, digest: str) -> bool:
    # A crash with an unknown template counts: an older version of Wattloop recorded it.
    return record.result == Result.CRASHED.value and record.template_digest not in (None, digest)
