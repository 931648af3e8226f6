"""What the engine can ask for. Each may be carried out again without harm: names are locks, outcomes are final."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.domain.records import LateUsage, ObservationRecord, PowerMeasurement, ProfileKey


@dataclass(frozen=True)
class RecordObservation:
    """Remember an outcome in the store."""

    record: ObservationRecord


@dataclass(frozen=True)
class RecordLateUsage:
    """Remember in the store what an attempt used, as it became known after its outcome."""

    late_usage: LateUsage


@dataclass(frozen=True)
class RecordProfile:
    """Remember measured power limits in the store."""

    key: ProfileKey
    measurements: tuple[PowerMeasurement, ...]


@dataclass(frozen=True)
class CreateRecurrence:
    """Create a TrainingRecurrence; one of the same name that is there already is left as it is."""

    recurrence: TrainingRecurrence


@dataclass(frozen=True)
class StartWorkload:
    """Start the workload of a recurrence; one of the same name that belongs to it is left as it is."""

    recurrence: TrainingRecurrence


@dataclass(frozen=True)
class EndWorkload:
    """End the workload of a recurrence and everything that runs in it; one that is gone is no error."""

    recurrence: TrainingRecurrence


@dataclass(frozen=True)
class WriteRecurrenceStatus:
    """Write the engine's part of a recurrence's status: all of it but `progress`, which is the reporting API's.

    It must fail, and the turn be taken again, where the recurrence has changed since the snapshot: a report that
    arrived in between may change the outcome.
    """

    recurrence: TrainingRecurrence
    status: TrainingRecurrenceStatus


@dataclass(frozen=True)
class DeleteRecurrence:
    """Delete an ended recurrence beyond the history limit; the store remembers what it taught."""

    recurrence: TrainingRecurrence


@dataclass(frozen=True)
class WriteJobStatus:
    """Write the job's status."""

    status: RecurringTrainingJobStatus


@dataclass(frozen=True)
class EmitEvent:
    """Tell the user: a Kubernetes Event on the job, a line on a laptop.

    Attributes:
        warning: Whether it needs attention.
        reason: One CamelCase word.
        message: What happened and what to do, naming the object.
    """

    warning: bool
    reason: str
    message: str


Action = (
    RecordObservation
    | RecordLateUsage
    | RecordProfile
    | CreateRecurrence
    | StartWorkload
    | EndWorkload
    | WriteRecurrenceStatus
    | DeleteRecurrence
    | WriteJobStatus
    | EmitEvent
)


@dataclass(frozen=True)
class ReconcileResult:
    """What to do now, in this order, and when to look again though nothing happens.

    Attributes:
        actions: To be carried out one after another; after a failure the rest is dropped and the turn taken again.
        wake_at: When time alone makes something due; None: never.
    """

    actions: tuple[Action, ...]
    wake_at: datetime | None
