"""Actions that a backend carries out.

Each action is idempotent: names act as locks, and outcomes are final.
"""

from dataclasses import dataclass
from datetime import datetime

from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.domain.decision_inputs import StoredDecision
from wattloop_operator.domain.records import LateUsage, ObservationRecord, PowerProfileRecord
from wattloop_operator.domain.snapshot import UndeliveredReports
from wattloop_operator.domain.training_attempt import TrainingAttempt

# Reason of the Event of a recurrence that was deleted.
RECURRENCE_DELETED = "RecurrenceDeleted"


@dataclass(frozen=True)
class RecordObservation:
    """Record an outcome in the store."""

    record: ObservationRecord


@dataclass(frozen=True)
class RecordLateUsage:
    """Record in the store a usage that was reported after the attempt's outcome."""

    late_usage: LateUsage


@dataclass(frozen=True)
class RecordProfile:
    """Record a power profile in the store."""

    profile: PowerProfileRecord


@dataclass(frozen=True)
class CreateRecurrence:
    """Create a TrainingRecurrence. An existing one of the same name is left unchanged.

    Attributes:
        inputs: What it was decided from, which the store keeps; None if no policy decided it.
    """

    recurrence: TrainingAttempt
    inputs: StoredDecision | None = None


@dataclass(frozen=True)
class StartWorkload:
    """Start the workload of a recurrence. An existing one of the same name that belongs to it is left unchanged."""

    recurrence: TrainingAttempt


@dataclass(frozen=True)
class EndWorkload:
    """End the workload of a recurrence and all its processes.

    A workload that does not exist is no error.

    Attributes:
        gracefully: Whether its processes get SIGTERM and time to end, and the workload remains until they have
            ended. Otherwise the workload is abandoned.
    """

    recurrence: TrainingAttempt
    gracefully: bool = False


@dataclass(frozen=True)
class MergeUndelivered:
    """Merge the reports that the processes of a recurrence left while no operator received them.

    What is not of its pods or cannot be read is passed over. Later snapshots have the others in the attempt's progress,
    and none of them in the state of its workload.
    """

    recurrence: TrainingAttempt
    reports: tuple[UndeliveredReports, ...]


@dataclass(frozen=True)
class WriteRecurrenceStatus:
    """Write the status of a recurrence.

    It must fail with `StaleSnapshotError` if the object has changed since the snapshot. An outcome is final: it is
    first written to the row of the attempt's progress, and that must fail if the row has changed, because a report that
    arrived in between may change the outcome.
    """

    recurrence: TrainingAttempt
    status: TrainingRecurrenceStatus


@dataclass(frozen=True)
class DeleteRecurrence:
    """Delete an ended recurrence beyond the history limits. Its record stays in the store."""

    recurrence: TrainingAttempt


@dataclass(frozen=True)
class AnnotateHistory:
    """Write the annotation of the job that states its history, as the job of the snapshot has it."""


@dataclass(frozen=True)
class AdoptRecurrence:
    """Make the job the controller of a recurrence of its history that was restored, so that it ends with the job.

    Attributes:
        status: Its status, by what the store has of it; None if it was restored with its status.
    """

    recurrence: TrainingAttempt
    status: TrainingRecurrenceStatus | None = None


@dataclass(frozen=True)
class WriteJobStatus:
    """Write the job's status."""

    status: RecurringTrainingJobStatus


@dataclass(frozen=True)
class EmitEvent:
    """Inform the user: a Kubernetes Event on the job, or a log line in the local mode.

    Attributes:
        warning: Whether it needs attention.
        reason: The reason, as one CamelCase word.
        message: What happened and what to do, with the name of the object.
        recurrence: The recurrence that the Event is about, which has it too; None if it is about the job.
    """

    warning: bool
    reason: str
    message: str
    recurrence: TrainingRecurrence | None = None


Action = (
    RecordObservation
    | RecordLateUsage
    | RecordProfile
    | CreateRecurrence
    | StartWorkload
    | EndWorkload
    | MergeUndelivered
    | WriteRecurrenceStatus
    | DeleteRecurrence
    | AnnotateHistory
    | AdoptRecurrence
    | WriteJobStatus
    | EmitEvent
)


@dataclass(frozen=True)
class ReconcileResult:
    """The actions that are due, and when time alone makes the next one due.

    Attributes:
        actions: To be carried out in this order. After a failure the rest is dropped and computed
            again.
        wake_at: When time alone makes an action due; None if it does not.
    """

    actions: tuple[Action, ...]
    wake_at: datetime | None = None

    @property
    def informing(self) -> tuple[Action, ...]:
        """The actions that only tell users what has happened, so that no training waits for them."""
        return tuple(each for each in self.actions if isinstance(each, WriteJobStatus | EmitEvent))
