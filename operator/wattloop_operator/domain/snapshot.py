"""All that the engine looks at: one job with its recurrences, their workloads and what was learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import PodReference, TrainingRecurrence
from wattloop_operator.domain.records import LateUsage, ObservationRecord, PodEnergy, PowerProfileRecord


class WorkloadPhase(StrEnum):
    """Where a workload stands, whatever its kind."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self in (WorkloadPhase.SUCCEEDED, WorkloadPhase.FAILED)


class Failure(StrEnum):
    """Why a workload failed.

    CRASHED: its process ended by its own doing, out of memory among others: it counts against the batch size.
    DISRUPTED: the cluster or the machine ended it: it says nothing of the batch size.
    DEADLINE: it ran past its own deadline.
    """

    CRASHED = "Crashed"
    DISRUPTED = "Disrupted"
    DEADLINE = "Deadline"


@dataclass(frozen=True)
class WorkloadState:
    """What is seen of one workload.

    Attributes:
        name: Its name, that of its recurrence.
        api_version: API version of its kind.
        kind: Its kind.
        uid: Its uid.
        phase: Where it stands.
        owned: Whether it belongs to the recurrence of its name; a foreign object is never touched.
        started_at: When its first process started.
        ended_at: When it ended.
        failure: Why it failed.
        ending: Whether it is being deleted already.
        message: What its kind says of its state: an exit code, an image that cannot be pulled, no node to run on.
        unhealthy: Which devices that its processes hold are unhealthy; empty: none is known to be.
        pods: Its pods that were seen to be bound to a node.
    """

    name: str
    api_version: str = "batch/v1"
    kind: str = "Job"
    uid: str = ""
    phase: WorkloadPhase = WorkloadPhase.PENDING
    owned: bool = True
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failure: Failure | None = None
    ending: bool = False
    message: str = ""
    unhealthy: str = ""
    pods: tuple[PodReference, ...] = ()

    @property
    def must_be_ended(self) -> bool:
        """Whether the workload is Wattloop's and still runs, and its deletion has not begun."""
        return self.owned and not self.ending and not self.phase.ended


@dataclass(frozen=True)
class Snapshot:
    """The state of one job.

    Attributes:
        job: The job as the user wrote it, with the status that Wattloop wrote last.
        recurrences: Its TrainingRecurrences, in any order.
        workloads: What is seen of their workloads, by name.
        records: What the store remembers of the job, ordered by (recurrence, attempt).
        profiles: Its power profiles.
        learned: What the store remembers of the job that `spec.batchSize.learnFrom` names.
        refusal: Why the API server refuses the job's workload; empty where it was accepted or not asked yet.
        late_usages: What the store remembers of attempts whose usage was amended after their outcome.
        pod_energies: What the nodes' agents say of the pods of recurrences, by recurrence.
        devices: GPUs that an attempt's training containers ask for; 0: none, or it is not known.
        agent_patience_seconds: How long an attempt that has ended waits for the agents' last word; 0: none report.
    """

    job: RecurringTrainingJob
    recurrences: tuple[TrainingRecurrence, ...] = ()
    workloads: Mapping[str, WorkloadState] = field(default_factory=dict)
    records: tuple[ObservationRecord, ...] = ()
    profiles: tuple[PowerProfileRecord, ...] = ()
    learned: tuple[ObservationRecord, ...] = ()
    refusal: str = ""
    late_usages: tuple[LateUsage, ...] = ()
    pod_energies: Mapping[str, tuple[PodEnergy, ...]] = field(default_factory=dict)
    devices: int = 0
    agent_patience_seconds: int = 0
