"""What earlier attempts still say after their job has changed (docs/decisions/reconcile.md).

An attempt with another target still gives the cost of an epoch, and by its curve perhaps the epochs to the present
target. A crash counts only while the job has the template that crashed. What the user forgot by `spec.learnSince` says
nothing. Warm and cold starts, and two training runtimes, are two trainings, as two templates are.
"""

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.job_identity import history_uid
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord, once_per_record
from wattloop_operator.domain.snapshot import Snapshot, once_per_snapshot
from wattloop_operator.reconcile.learning.job_observations import (
    known_profiles,
    known_records,
    latest_gpus,
    observation_of,
)
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile, at_policy_limits
from wattloop_planner.observations import Observation, Outcome, retargeted

DIGEST_BYTES = 16


# In the reason of an attempt that is to tell the cause of a crash.
TELLS_CAUSE = "to find out whether attempt"


@dataclass(frozen=True)
class KnownAttempts:
    """What is known of the attempts of a job, and what they say about its next one: all that a decision learns from.

    Attributes:
        records: The records of all outcomes, ordered by (recurrence, attempt).
        kept: The records that the user did not forget, in the same order.
        observations: The observations of those attempts that count, in the same order.
        converted: Those observations that are of attempts with another target, converted to the
            present one by the attempts' curves.
    """

    records: tuple[ObservationRecord, ...]
    profiles: tuple[PowerProfileRecord, ...]
    kept: tuple[ObservationRecord, ...]
    observations: tuple[Observation, ...]
    converted: tuple[Observation, ...]
    of_source: tuple[Observation, ...]
    target: RunTarget

    @property
    def gpu_product(self) -> str:
        """Model of the GPUs of the latest attempt with GPUs; empty if there is none."""
        return latest_gpus(self.records)[0]

    @cached_property
    def current(self) -> tuple[ObservationRecord, ...]:
        """The kept records of the attempts that trained towards the present target."""
        return tuple(record for record in self.kept if record.target == self.target)

    def profile(self, batch_size: int) -> PowerProfileRecord | None:
        """The power profile that applies to the next attempt with a batch size; None if there is none."""
        return applicable_profile(self.records, self.profiles, batch_size)


@once_per_snapshot
def known_attempts(snapshot: Snapshot) -> KnownAttempts:
    """What is known of the attempts of a job, given its present spec and status."""
    records, profiles = known_records(snapshot), known_profiles(snapshot)
    kept = _without_excused(not_forgotten(snapshot.job, records))
    present = _present_training(snapshot)
    counted, converted = [], []
    for record in at_policy_limits(snapshot.job.spec, kept, profiles):
        observation = _counted(record, present)
        if observation is None:
            continue
        counted.append(observation)
        is_converted = record.target != present.target and not observation.other_target
        if is_converted and observation.outcome is not Outcome.CRASHED:
            converted.append(observation)
    return KnownAttempts(
        records, profiles, kept, tuple(counted), tuple(converted), source_observations(snapshot), present.target
    )


@once_per_snapshot
def source_observations(snapshot: Snapshot) -> tuple[Observation, ...]:
    """The observations of the job that this one learns from (`spec.batchSize.learnFrom`), as far as they apply.

    They are the attempts towards this job's metric, direction and threshold that its user did not
    forget there; the number of consecutive evaluations may differ. Attempts towards another
    threshold are converted by their curves. A job whose next attempt starts warm learns only from one whose
    next attempt does, and a job that starts cold only from one that starts cold.
    """
    present, source = _present_training(snapshot), snapshot.source_job
    if is_warm_start(snapshot.job) != (source is not None and is_warm_start(source)):
        return ()
    found = []
    for record in snapshot.source_records:
        # A deleted job of the same name has recurrences with the same indices.
        if source is not None and record.job_uid == history_uid(source) and not not_forgotten(source, (record,)):
            continue
        observation = _of_source(record, present)
        if observation is not None:
            found.append(observation)
    return tuple(found)


def not_forgotten(job: RecurringTrainingJob, records: Iterable[ObservationRecord]) -> tuple[ObservationRecord, ...]:
    """The records that the user did not forget."""
    since = job.status.learn_since
    return tuple(records) if since is None else tuple(each for each in records if each.recurrence >= since.recurrence)


def _without_excused(records: Iterable[ObservationRecord]) -> tuple[ObservationRecord, ...]:
    """The records less the crashes that the next attempt of their recurrence showed to be a mistake of the script."""
    ordered = tuple(records)
    # A disrupted attempt is repeated, so the one that shows it may follow later.
    telling = (each for each in ordered if each.result != Result.DISRUPTED.value)
    excused = {
        (record.recurrence, record.attempt)
        for record, after in itertools.pairwise(telling)
        if record.result == Result.CRASHED.value and record.recurrence == after.recurrence and _excuses(record, after)
    }
    return tuple(each for each in ordered if (each.recurrence, each.attempt) not in excused) if excused else ordered


def _excuses(crash: ObservationRecord, after: ObservationRecord) -> bool:
    if after.result == Result.SCRIPT_ERROR.value:
        # It ran to tell the cause, as none does after a lack of memory.
        return TELLS_CAUSE in after.reason
    return after.result == Result.START_FAILED.value and crash.epochs == 0


class _PresentTraining(NamedTuple):
    """What a job trains now, by which its earlier attempts are judged.

    Attributes:
        template_digest: Digest of its template, its training runtime and its kind of start.
        converts: Whether the policy uses attempts with another target, converted to this one.
    """

    target: RunTarget
    template_digest: str
    converts: bool


def _present_training(snapshot: Snapshot) -> _PresentTraining:
    spec = snapshot.job.spec
    return _PresentTraining(spec.objective.target.run_target, training_digest(snapshot), spec.models_cost)


@once_per_record
def _counted(record: ObservationRecord, present: _PresentTraining) -> Observation | None:
    observation = observation_of(record, False)
    if observation is None:
        return None
    if observation.outcome is Outcome.CRASHED:
        # A crash says nothing about the target. One with an unknown template counts: an older version
        # of Wattloop recorded it.
        counts = record.template_digest in (None, present.template_digest)
        return replace(observation, curve=None) if counts else None
    if record.target == present.target:
        return observation
    return _converted(record, observation, present) or replace(observation, curve=None, other_target=True)


@once_per_record
def _of_source(record: ObservationRecord, present: _PresentTraining) -> Observation | None:
    observation = observation_of(record, True)
    if observation is None or observation.outcome is Outcome.CRASHED:
        return None
    if replace(record.target, consecutive_evaluations=present.target.consecutive_evaluations) == present.target:
        return observation
    return _converted(record, observation, present)


def _converted(record: ObservationRecord, observation: Observation, present: _PresentTraining) -> Observation | None:
    before, target = record.target, present.target
    if not present.converts or (before.metric, before.maximize) != (target.metric, target.maximize):
        return None
    return retargeted(observation, target)


def is_warm_start(job: RecurringTrainingJob) -> bool:
    """Whether the next attempt of a job begins with the current model: its user wants that, and there is one."""
    output = job.spec.output
    return output is not None and output.warm_start and job.status.published is not None


def training_digest(snapshot: Snapshot, *, warm_start: bool | None = None) -> str:
    """Digest of what an attempt trains: of the template, its runtime, and whether it begins with the current model.

    A runtime that is not known is no change: the digest is that of the latest attempt that has ended. Nothing is
    decided with it.

    `warm_start`: whether it begins with that; None: as the next attempt does.
    """
    spec = snapshot.job.spec
    digest = spec.template.digest
    if spec.training_containers is not None:
        digest = _digest(f"{digest} in {' '.join(spec.training_containers)}")
    if snapshot.runtime_digest is None:
        records = known_records(snapshot)
        return (records[-1].template_digest if records else None) or digest
    if snapshot.runtime_digest:
        digest = _digest(f"{digest} in runtime {snapshot.runtime_digest}")
    warm = is_warm_start(snapshot.job) if warm_start is None else warm_start
    return _digest(f"warm start of {digest}") if warm else digest


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
