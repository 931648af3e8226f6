"""A backend in memory.

It has versioned objects, workloads that the test controls, and a store that can be lost.

It implements the same protocol as the cluster and the local mode, counts events that may occur only
once, and can be killed before or after any action.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from support.backends.sample_reports import START, report
from wattloop.wire.undelivered_reports import unpacked
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import Saving
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.domain.decision_inputs import StoredDecision
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import LateUsage, ObservationRecord, PodEnergy, PowerProfileRecord
from wattloop_operator.domain.snapshot import (
    Failure,
    PolicyCache,
    Snapshot,
    UndeliveredReports,
    WorkloadPhase,
    WorkloadState,
)
from wattloop_operator.domain.tariff import NO_TARIFF, Tariff
from wattloop_operator.domain.training_attempt import ProgressRow, TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError, reconcile
from wattloop_operator.history.replayed_decisions import ReplayedDecision, replayed_decisions
from wattloop_operator.reconcile import actions
from wattloop_operator.reconcile.attempt.early_stop import with_stop_request
from wattloop_operator.reconcile.attempt.ordered_limit import with_agent_readings
from wattloop_operator.reconcile.attempt.progress_deadline import with_heartbeat
from wattloop_operator.reconcile.attempt.report_effect import OutputReport, progress_after, progress_after_output
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.decision import decision_context
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.observations import Outcome

KEY = JobKey("team", "digits")
Value = TypeVar("Value")


class KilledError(Exception):
    """The operator is killed at this point."""


def job(**changes: Any) -> RecurringTrainingJob:
    """A job with these fields of its spec changed, in wire form; of the batch sizes, those fields alone.

    None removes a field. `START` is the first slot.
    """
    spec: dict[str, Any] = {
        "schedule": None if changes.get("continuous") else "0 * * * *",
        "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 50},
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "digits"}]}}}},
        **changes,
        "batchSize": {"default": 64, "candidates": [16, 32, 64, 128], **changes.get("batchSize", {})},
    }
    return RecurringTrainingJob.from_wire(
        {
            "apiVersion": "wattloop.dev/v1alpha1",
            "kind": "RecurringTrainingJob",
            "metadata": {
                "name": KEY.name,
                "namespace": KEY.namespace,
                "uid": "job-uid",
                "generation": 1,
                "creationTimestamp": "2026-03-01T11:59:59Z",
            },
            "spec": {name: value for name, value in spec.items() if value is not None},
        }
    )


@dataclass
class ModelBackend:
    """A job, its objects, its store, and a clock that the test controls."""

    job: RecurringTrainingJob
    now: datetime = START
    recurrences: dict[str, TrainingAttempt] = field(default_factory=dict)
    workloads: dict[str, WorkloadState] = field(default_factory=dict)
    records: dict[tuple[int, int], ObservationRecord] = field(default_factory=dict)
    profiles: dict[Any, PowerProfileRecord] = field(default_factory=dict)
    decisions: dict[tuple[int, int], StoredDecision] = field(default_factory=dict)
    late_usages: dict[tuple[int, int], LateUsage] = field(default_factory=dict)
    events: list[actions.EmitEvent] = field(default_factory=list)
    created: Counter[str] = field(default_factory=Counter)
    started: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, str] = field(default_factory=dict)
    usages: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    status_writes: Counter[str] = field(default_factory=Counter)
    killed_once_decided: bool = False
    refusal: str = ""
    pod_energies: dict[str, tuple[PodEnergy, ...]] = field(default_factory=dict)
    devices: int = 0
    runtime_digest: str | None = ""
    observed_since: datetime | None = None
    agent_report_timeout_seconds: int = 0
    reads_output: bool = True
    recurrences_option: str = ""
    tariff: Tariff = NO_TARIFF
    policies: PolicyCache = field(default_factory=PolicyCache)
    actions_until_killed: int | None = None
    killed_after: bool = False
    version: int = 0
    # In the memory of the operator.
    starts: set[str] = field(default_factory=set)

    def clock(self) -> datetime:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the clock; a negative number sets it back."""
        self.now += timedelta(seconds=seconds)

    def reconcile(self) -> datetime | None:
        """Carry out actions until none are due; returns when time alone makes another one due."""
        return reconcile(self, KEY, self.clock)

    def snapshot(self, key: JobKey) -> Snapshot | None:
        assert key == KEY
        return Snapshot(
            job=self.job,
            recurrences=tuple(self.recurrences.values()),
            workloads=dict(self.workloads),
            unstated_starts=frozenset(self.starts),
            records=tuple(self.records[key] for key in sorted(self.records)),
            profiles=tuple(self.profiles.values()),
            late_usages=tuple(self.late_usages.values()),
            refusal=self.refusal,
            pod_energies=dict(self.pod_energies),
            devices=self.devices,
            runtime_digest=self.runtime_digest,
            agent_report_timeout_seconds=self.agent_report_timeout_seconds,
            observed_since=self.observed_since,
            reads_output=self.reads_output,
            recurrences_option=self.recurrences_option,
            tariff=self.tariff,
            policies=self.policies,
        )

    @property
    def state(self) -> Snapshot:
        """The state of the job."""
        snapshot = self.snapshot(KEY)
        assert snapshot is not None
        return snapshot

    def carry_out(self, snapshot: Snapshot, action: actions.Action) -> None:
        """See `Backend`. Raises KilledError before or after the action if the test requests it."""
        killed = self.actions_until_killed == 0
        if self.actions_until_killed is not None:
            self.actions_until_killed -= 1
        if not killed or self.killed_after:
            self._carry_out(action)
        if killed:
            self.starts.clear()
            raise KilledError(repr(action))

    def _carry_out(self, action: actions.Action) -> None:
        match action:
            case actions.RecordObservation(record):
                self.records.setdefault((record.recurrence, record.attempt), record)
            case actions.RecordLateUsage(late_usage):
                if late_usage.job_uid == self.job.metadata.uid:
                    self.late_usages[(late_usage.recurrence, late_usage.attempt)] = late_usage
            case actions.RecordProfile(profile):
                self.profiles[profile.key] = profile
            case actions.CreateRecurrence(recurrence, inputs):
                if inputs is not None:
                    # The latest one is the last.
                    self.decisions.pop(recurrence.order, None)
                    self.decisions[recurrence.order] = StoredDecision.from_bytes("the store", inputs.to_bytes())
                self._create(recurrence)
            case actions.StartWorkload(recurrence):
                self._start(recurrence.metadata.name)
            case actions.EndWorkload(recurrence, gracefully=True):
                name = recurrence.metadata.name
                self.workloads[name] = replace(self.workloads[name], terminating=True)
            case actions.EndWorkload(recurrence):
                self.workloads.pop(recurrence.metadata.name, None)
            case actions.MergeUndelivered(recurrence, texts):
                self._merge_undelivered(recurrence.metadata.name, texts)
            case actions.WriteRecurrenceStatus(recurrence, status):
                self._write_status(recurrence, status)
            case actions.DeleteRecurrence(recurrence):
                assert recurrence.order in self.records, "deleted before it was recorded"
                self.delete(recurrence.metadata.name)
            case actions.WriteJobStatus(status):
                self.job = self.job.model_copy(update={"status": status})
            case actions.EmitEvent():
                self.events.append(action)

    def _merge_undelivered(self, name: str, texts: Sequence[UndeliveredReports]) -> None:
        for text in texts:
            for received in unpacked(text.packed):
                recurrence = self.recurrences[name]
                self.merge(recurrence, with_stop_request(recurrence, progress_after(recurrence, received)))
        self.workloads[name] = replace(self.workloads[name], undelivered=())

    def _create(self, recurrence: TrainingAttempt) -> None:
        name = recurrence.metadata.name
        if name in self.recurrences:
            return
        self.created[name] += 1
        metadata = recurrence.metadata.model_copy(update={"uid": f"uid-of-{name}", "creation_timestamp": self.now})
        self.recurrences[name] = self._versioned(recurrence.model_copy(update={"metadata": metadata}))

    def _start(self, name: str) -> None:
        if name not in self.workloads:
            self.started[name] += 1
            self.workloads[name] = WorkloadState(name, uid=f"uid-of-{name}")
        self.starts.add(name)

    def _write_status(self, read: TrainingAttempt, status: TrainingRecurrenceStatus) -> None:
        name, result = read.metadata.name, status.result
        stored = self.recurrences.get(name)
        if stored is None:
            raise StaleSnapshotError(name)
        if result is not None and read.status.result is None and read.outcome is None:
            if stored.progress_version != read.progress_version:
                raise StaleSnapshotError(name)
            stored = self._with_row(stored, outcome=status)
            if self.killed_once_decided:
                self.killed_once_decided = False
                raise KilledError(f"before the outcome of {name} was written to its object")
        if stored.metadata.resource_version != read.metadata.resource_version:
            raise StaleSnapshotError(name)
        if name in self.outcomes:
            assert result == self.outcomes[name], f"the outcome of {name} was changed"
        if result is not None:
            self.outcomes[name] = result
            used = status.usage
            amounts = (0.0, 0.0) if used is None else (float(used.gpu_energy_joules), float(used.duration_seconds))
            self.usages.setdefault(name, []).append(amounts)
        self.status_writes[name] += 1
        self.recurrences[name] = self._versioned(stored.model_copy(update={"status": status}))
        if status.workload_ref is not None or result is not None:
            self.starts.discard(name)

    def _with_row(self, recurrence: TrainingAttempt, **changes: Any) -> TrainingAttempt:
        """Change the row of a recurrence."""
        row = {"progress_version": recurrence.progress_version + 1, **changes}
        changed = self.recurrences[recurrence.metadata.name] = _rounded(recurrence.model_copy(update=row))
        return changed

    def merge(self, recurrence: TrainingAttempt, progress: Progress) -> None:
        """Write the progress of a recurrence, unless its outcome is decided."""
        if recurrence.outcome is None and recurrence.status.result is None:
            self._with_row(recurrence, progress=progress, reported_at=self.now)

    def _versioned(self, recurrence: TrainingAttempt) -> TrainingAttempt:
        self.version += 1
        metadata = recurrence.metadata.model_copy(update={"resource_version": str(self.version)})
        return _rounded(recurrence.model_copy(update={"metadata": metadata}))

    # Events outside the operator.

    def change_spec(self, **changes: Any) -> None:
        """The user edits the job. The fields are in wire form."""
        wire = self.job.to_wire()
        spec = {**wire["spec"], **changes}
        wire["spec"] = {name: value for name, value in spec.items() if value is not None}
        wire["metadata"]["generation"] += 1
        self.job = RecurringTrainingJob.from_wire(wire)

    def delete(self, name: str) -> None:
        """A user deletes a recurrence, together with its workload."""
        self.recurrences.pop(name, None)
        self.workloads.pop(name, None)

    def lose_database(self) -> None:
        """The store is deleted."""
        self.records.clear()
        self.profiles.clear()
        self.late_usages.clear()
        self.decisions.clear()
        self.recurrences = {name: TrainingAttempt.of(each, None) for name, each in self.recurrences.items()}

    def run_workload(self, name: str, image_digest: str | None = None) -> None:
        """Its process starts."""
        self.workloads[name] = replace(
            self.workloads[name],
            phase=WorkloadPhase.RUNNING,
            started_at=self.now,
            image_digest=image_digest,
            all_running_since=self.now,
        )

    def end_workload(
        self,
        name: str,
        failure: Failure | None = None,
        message: str = "",
        *,
        exit_code: int | None = None,
        output: str = "",
    ) -> None:
        """Its process ends."""
        phase = WorkloadPhase.SUCCEEDED if failure is None else WorkloadPhase.FAILED
        self.workloads[name] = replace(
            self.workloads[name],
            phase=phase,
            failure=failure,
            message=message,
            ended_at=self.now,
            exit_code=exit_code,
            output=output,
        )

    def status_of(self, name: str, seconds: float = 0.0) -> TrainingRecurrenceStatus:
        """The status of an attempt after this time, once nothing more is due."""
        self.reconcile_after(seconds)
        # One beyond the history limits is deleted.
        return self.recurrences[name].status if name in self.recurrences else TrainingRecurrenceStatus()

    def end_attempt(self, name: str, *how: Any, **fields: Any) -> TrainingRecurrenceStatus:
        """Its process ends, and the operator sees that; returns its status then."""
        self.end_workload(name, *how, **fields)
        return self.status_of(name)

    def finish(self, name: str, **fields: Any) -> TrainingRecurrenceStatus:
        """Its process reports its end and ends; returns its status then."""
        self.report(name, finished=True, **fields)
        return self.end_attempt(name)

    def run_once(self, image_digest: str | None = None, **fields: Any) -> str:
        """Run the oldest attempt to its end, and wait for the next recurrence; returns its name."""
        self.reconcile()
        name = self.running[0]
        self.run_workload(name, image_digest)
        self.finish(name, **fields)
        self.advance(3600)
        return name

    def edit(self, **changes: Any) -> None:
        """The user edits the job, and the operator sees that."""
        self.change_spec(**changes)
        self.reconcile()

    def reconcile_after(self, seconds: float) -> datetime | None:
        """Advance the clock and carry out what is due then."""
        self.advance(seconds)
        return self.reconcile()

    def report(self, name: str, **fields: Any) -> None:
        """A report arrives from the process of this recurrence."""
        recurrence = self.recurrences[name]
        received = report(**fields)
        progress = progress_after(recurrence, received)
        progress = with_agent_readings(recurrence, progress, self.pod_energies.get(name, ()), self.now)
        progress = with_heartbeat(recurrence, progress, received.rank, self.now)
        self.merge(recurrence, with_stop_request(recurrence, progress))

    def see(self, name: str, seen: OutputReport) -> None:
        """Something is seen of the training of this recurrence, which does not use the client."""
        recurrence = self.recurrences[name]
        self.merge(recurrence, with_stop_request(recurrence, progress_after_output(recurrence, seen)))

    def report_energy(self, name: str, *energies: PodEnergy) -> None:
        """The node agents report the energy of this recurrence's pods."""
        self.pod_energies[name] = tuple(replace(energy, reported_at=self.now) for energy in energies)

    def start_attempt(self) -> str:
        """Start the oldest attempt without a result, and its process; returns its name."""
        self.reconcile()
        name = self.running[0]
        self.run_workload(name)
        self.reconcile()
        return name

    def run_until_trial(self) -> str:
        """Run recurrences until the policy tries another batch size; returns the name of that running attempt."""
        for _ in range(6):
            name = self.start_attempt()
            if self.recurrences[name].spec.decision.kind == "Trial":
                return name
            self.report(name, epoch=10, metric=0.95, joules=10_000.0, seconds=100.0, finished=True)
            self.end_workload(name)
            self.reconcile()
            self.advance(3600)
        raise AssertionError("the policy never tried another batch size")

    def read_from_either_memory(self, read: Callable[[DecisionContext], Value]) -> Value:
        """A value of the next decision's context, which must be equal without the records and without the objects."""

        def value() -> Value:
            return read(decision_context(self.state, 99, 0))

        records, recurrences = dict(self.records), dict(self.recurrences)
        found = value()
        self.records = {}
        assert value() == found
        self.records, self.recurrences = records, {}
        assert value() == found
        self.recurrences = recurrences
        return found

    def replayed(self) -> list[ReplayedDecision]:
        """The decisions in the store, made again."""
        records = [self.records[key] for key in sorted(self.records)]
        return list(replayed_decisions(list(self.decisions.values()), records, lambda _: ()))

    @property
    def counted_crashes(self) -> list[int]:
        """The batch sizes of the crashes that decisions learn from, oldest first."""
        learned = known_attempts(self.state).observations
        return [each.batch_size for each in learned if each.outcome is Outcome.CRASHED]

    @property
    def savings(self) -> dict[str, Saving]:
        """The savings in the status of the job, by their names."""
        return {each.name: each for each in self.job.status.savings}

    @property
    def running(self) -> list[str]:
        """Names of the recurrences without a result, oldest first."""
        unfinished = [each for each in self.recurrences.values() if each.status.result is None]
        return [each.metadata.name for each in sorted(unfinished, key=lambda each: each.order)]


def backend_with(**changes: Any) -> ModelBackend:
    """A backend whose hourly job has other fields in its spec."""
    return ModelBackend(job(**changes))


def _rounded(recurrence: TrainingAttempt) -> TrainingAttempt:
    """A recurrence and its row through their stored forms and back, which round values."""
    outcome = recurrence.outcome
    row = ProgressRow(
        recurrence.progress_version,
        Progress.from_wire(recurrence.progress.to_wire()),
        recurrence.reported_at,
        None if outcome is None else TrainingRecurrenceStatus.from_wire(outcome.to_wire()),
    )
    return TrainingAttempt.of(TrainingRecurrence.from_wire(recurrence.to_wire()), row)


def stated(record: ObservationRecord) -> ObservationRecord:
    """What the object of an attempt states of its record; the rest is known from its row."""
    unknown = ("epoch_energy_joules", "epoch_time_seconds", "start_up_energy_joules", "start_up_time_seconds")
    probes = ("probe_trials", "probe_energy_joules", "probe_time_seconds")
    return replace(record, **dict.fromkeys((*unknown, *probes)))  # type: ignore[arg-type]  # of the columns
