"""The state of one job that decisions are made from."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from cachetools import LRUCache

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.records import LateUsage, ObservationRecord, PodEnergy, PowerProfileRecord
from wattloop_operator.domain.tariff import NO_TARIFF, Tariff
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_planner.bandit.policy import Policy

# A model has about six matrices of the arms, of 8 bytes a cell: this many cells are 24 MB.
MAX_CELLS = 500_000
# What a model has besides, in cells.
OTHER_CELLS = 200


@dataclass(frozen=True)
class _Entry:
    policy: Policy
    cells: int


class PolicyCache:
    """The most recently used policies, so that each updates its model with new observations only. Thread-safe.

    A policy decides the same whether it is kept or created. It is not thread-safe, so a decision takes it out and puts
    it back; a decision of the same job on another thread creates one meanwhile.

    Args:
        max_cells: Bound of the sum of the policies' sizes, in cells of one matrix of the arms.
    """

    def __init__(self, max_cells: int = MAX_CELLS) -> None:
        self._lock = threading.Lock()
        self._entries: LRUCache[Hashable, _Entry] = LRUCache(max_cells, getsizeof=lambda entry: entry.cells)

    @contextmanager
    def policy(self, key: Hashable, create: Callable[[], Policy], arms: int) -> Iterator[Policy]:
        """A policy that no other thread uses within the context.

        Args:
            key: Identifies the job and all settings of the policy.
            create: Creates the policy if none is kept.
            arms: Number of arms of its model, which determines its size.
        """
        with self._lock:
            entry = self._entries.pop(key, None)
        policy = create() if entry is None else entry.policy
        yield policy
        # Not after an exception, which may have left the model with a part of the observations.
        cells = arms**2 + OTHER_CELLS
        with self._lock:
            if cells <= self._entries.maxsize:
                self._entries[key] = _Entry(policy, cells)


Value = TypeVar("Value")


class WorkloadPhase(StrEnum):
    """Phase of a workload of any kind."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def ended(self) -> bool:
        """Whether nothing of the workload runs any more."""
        return self in (WorkloadPhase.SUCCEEDED, WorkloadPhase.FAILED)


class Failure(StrEnum):
    """Why a workload failed.

    CRASHED: Its process failed by itself, for example out of memory. It counts against the batch
    size, unless its output shows a mistake of the script. NOT_STARTED: Its program could not be started: its
    command is wrong. INIT_FAILED: An init container failed, before the training began. DISRUPTED: The cluster
    or the machine ended it. It gives no information about the batch size. DEADLINE: It exceeded its own deadline.
    """

    CRASHED = "Crashed"
    NOT_STARTED = "NotStarted"
    INIT_FAILED = "InitFailed"
    DISRUPTED = "Disrupted"
    DEADLINE = "Deadline"


@dataclass(frozen=True)
class WorkloadPod:
    """A pod of a workload.

    Attributes:
        node: Its node; empty if it was bound to none.
        index: Its index in an indexed Job; None in others.
    """

    name: str
    node: str = ""
    index: int | None = None
    uid: str = ""

    def __str__(self) -> str:
        index = "" if self.index is None else f" of index {self.index}"
        return f"pod {self.name}{index}{f' on node {self.node}' if self.node else ''}"


@dataclass(frozen=True)
class UndeliveredReports:
    """Reports that processes left in the termination message of their container, because no operator received them.

    Attributes:
        packed: The reports, as `wattloop.wire.undelivered_reports` packs them. Untrusted.
        superseded: Whether the container was started again since, in this pod or in another one.
    """

    pod: str
    pod_uid: str
    packed: str
    superseded: bool = False


@dataclass(frozen=True)
class QueueWait:
    """The wait of a workload for the quota of its queue.

    Attributes:
        reason: Why it waits, as one word of the queue's.
        message: The same as a sentence.
        since: Since when; None if that is not known.
    """

    queue: str
    reason: str
    message: str = ""
    since: datetime | None = None

    def __str__(self) -> str:
        return f"it waits in queue {self.queue}: {self.reason}{f': {self.message}' if self.message else ''}"


@dataclass(frozen=True)
class WorkloadState:
    """The observed state of one workload.

    Attributes:
        name: Its name, which is that of its recurrence.
        api_version: API version of its kind.
        owned: Whether it belongs to the recurrence of its name. Wattloop never changes an object
            that does not.
        started_at: When its first process started.
        all_running_since: Since when all its processes run, the restarted ones included; None while one of them waits
            to run, for example for a node or an image, or if it has ended.
        ended_at: When it ended.
        failure: Why it failed; None if it did not.
        failed_pod: Its pod that failed first; None if it did not fail, or if that is not known.
        exit_code: Exit code of the process that failed first; negative or above 128 for a signal; None if it did not
            fail, or if that is not known.
        output: The end of what that process printed, or one that ended well, as far as it is known. Untrusted.
        log: Where its whole output is: a file or a command; empty if that is not known.
        killed_ranks: The ranks that were killed, as far as its launcher says.
        terminating: Whether its deletion has begun.
        message: Details of its state: an exit code, an image that cannot be pulled, no node to run
            on.
        wait_reason: What hinders a pod that waits, as one word of Kubernetes such as ImagePullBackOff; empty if nothing
            is known to. `message` has the details.
        suspended: Whether it is suspended, by its user or by a queue, so that it has no pods.
        unhealthy: The unhealthy devices of its containers, as a sentence; empty if none is known.
        pods: Its pods that are bound to a node.
        pods_ended: Whether all of its pods have ended. Its controller may say so minutes later.
        image_digest: Digest of the image of its training container; None if it is not known.
        queue: Its wait in a queue; None if it waits in none.
        may_run_again: Whether its controller may run it again although it has failed, so that it has to be deleted.
        backs_off: Whether its pods have ended and its controller waits before it creates others.
        undelivered: Reports that its processes left for the operator, and that it has not merged yet.
    """

    name: str
    api_version: str = "batch/v1"
    kind: str = "Job"
    uid: str = ""
    phase: WorkloadPhase = WorkloadPhase.PENDING
    owned: bool = True
    started_at: datetime | None = None
    all_running_since: datetime | None = None
    ended_at: datetime | None = None
    failure: Failure | None = None
    failed_pod: WorkloadPod | None = None
    exit_code: int | None = None
    output: str = ""
    log: str = ""
    killed_ranks: tuple[int, ...] = ()
    terminating: bool = False
    message: str = ""
    wait_reason: str = ""
    suspended: bool = False
    unhealthy: str = ""
    pods: tuple[WorkloadPod, ...] = ()
    pods_ended: bool = False
    image_digest: str | None = None
    queue: QueueWait | None = None
    may_run_again: bool = False
    backs_off: bool = False
    undelivered: tuple[UndeliveredReports, ...] = ()

    @property
    def must_be_ended(self) -> bool:
        """Whether the workload is Wattloop's and still runs or may run again, and its deletion has not begun."""
        return self.owned and not self.terminating and (self.may_run_again or not self.phase.ended)


@dataclass(frozen=True)
class Snapshot:
    """The state of one job.

    Attributes:
        job: The job, with the status that Wattloop wrote last.
        recurrences: Its TrainingRecurrences, unordered.
        workloads: Their workloads, by name.
        unstated_starts: Names of those whose workload this backend has started, and whose status does not name it yet.
            A workload of theirs that does not exist was deleted, and is not started again.
        records: The job's records in the store, ordered by (recurrence, attempt).
        profiles: Its power profiles in the store.
        source_records: Records of the job that `spec.batchSize.learnFrom` names.
        source_job: That job; None if it does not exist.
        refusal: Why the API server rejects the job's workload; empty if it accepts it or was not
            asked yet.
        late_usages: Usages in the store that were reported after their attempts' outcomes.
        pod_energies: The node agents' reports about the recurrences' pods, by name of the
            recurrence.
        devices: GPUs that an attempt's training containers request; 0 if none, or not known.
        runtime_digest: Digest of the training runtime that the template refers to; empty if it refers to none; None if
            it is not known.
        agent_report_timeout_seconds: How long an attempt that has ended waits for the agents' final
            report; 0 if no agents report.
        observed_since: Since when the backend observes the job without interruption: this operator leads, its clock
            has made no step, and the database takes reports. Reports may have had no receiver before. None: always.
        reads_output: Whether the output of trainings is read.
        reads_files: Whether files that trainings write are read.
        measures_limits_by_output: Whether power limits are measured by the epochs in the output of a training that
            does not use the client.
        recurrences_option: Option of a command that runs recurrences one after another, in place of `spec.schedule` and
            `spec.maxRecurrences`; empty if these apply.
        tariff: Price and carbon intensity of electricity in the job's namespace.
        deleted_recurrences: Recurrences that were deleted, and not by a history limit, and of which no Event tells yet:
            ended ones, and those that the job's status does not state yet, so that their slots do not start again.
        restored_recurrences: Recurrences of the job's history that were restored without their status, and do not run.
        unannotated: Whether the job's object lacks the annotation that states its history.
        policies: Policies that decisions keep for later ones; those of the process, or else new ones.
            Decisions do not depend on it.
        derived: Values that are computed from the snapshot once; see `once_per_snapshot`.
    """

    job: RecurringTrainingJob
    recurrences: tuple[TrainingAttempt, ...] = ()
    workloads: Mapping[str, WorkloadState] = field(default_factory=dict)
    unstated_starts: frozenset[str] = frozenset()
    records: tuple[ObservationRecord, ...] = ()
    profiles: tuple[PowerProfileRecord, ...] = ()
    source_records: tuple[ObservationRecord, ...] = ()
    source_job: RecurringTrainingJob | None = None
    refusal: str = ""
    late_usages: tuple[LateUsage, ...] = ()
    pod_energies: Mapping[str, tuple[PodEnergy, ...]] = field(default_factory=dict)
    devices: int = 0
    runtime_digest: str | None = ""
    agent_report_timeout_seconds: int = 0
    observed_since: datetime | None = None
    reads_output: bool = True
    reads_files: bool = False
    measures_limits_by_output: bool = False
    recurrences_option: str = ""
    tariff: Tariff = NO_TARIFF
    deleted_recurrences: tuple[TrainingAttempt, ...] = ()
    restored_recurrences: tuple[TrainingAttempt, ...] = ()
    unannotated: bool = False
    policies: PolicyCache = field(default_factory=PolicyCache, repr=False, compare=False)
    derived: dict[Callable[[Snapshot], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def was_started(self, recurrence: TrainingAttempt) -> bool:
        """Whether the workload of a recurrence is known to have been started."""
        return recurrence.status.workload_ref is not None or recurrence.metadata.name in self.unstated_starts


def once_per_snapshot(function: Callable[[Snapshot], Value]) -> Callable[[Snapshot], Value]:
    """A decorator of a pure function of a snapshot, which keeps its value in the snapshot."""

    @functools.wraps(function)
    def derive(snapshot: Snapshot) -> Value:
        if function not in snapshot.derived:
            snapshot.derived[function] = function(snapshot)
        value: Value = snapshot.derived[function]
        return value

    return derive


# Slewing, as NTP does it, changes the clocks' difference by at most 0.5 ms per second.
MAX_STEP_SECONDS = 5.0


class SteadyClock:
    """Compares the wall clock with the monotonic clock, which a suspended machine stops and nobody sets.

    Thread-safe.

    Args:
        clock: The time, with a time zone.
        monotonic: Monotonic seconds.

    Example:
        >>> from datetime import UTC, timedelta
        >>> noon, hours, seconds = datetime(2026, 3, 1, 12, tzinfo=UTC), [0], [0.0]
        >>> steady = SteadyClock(lambda: noon + timedelta(hours=hours[0], seconds=seconds[0]), lambda: seconds[0])
        >>> seconds[0] = 3600.0
        >>> f"{steady.since():%H:%M}"
        '12:00'
        >>> hours[0] = 8  # the machine was suspended for 8 hours
        >>> f"{steady.since():%H:%M}"
        '21:00'
    """

    def __init__(self, clock: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since = clock()
        self._offset = self._since.timestamp() - monotonic()

    def since(self) -> datetime:
        """Since when the wall clock has made no step: at most since this object was made."""
        with self._lock:
            now = self._clock()
            offset = now.timestamp() - self._monotonic()
            if abs(offset - self._offset) > MAX_STEP_SECONDS:
                self._since = now
            # The latest difference, so that slewing never adds up to a step.
            self._offset = offset
            return self._since
