"""The behaviour that every backend must have: the model in memory, this machine, a cluster.

The tests of a backend derive a class from `BackendContract` and define a fixture `harness`. It gives the backend, a job
in it, and the operations that depend on the backend: how a report arrives, and how often a workload was started.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from support.databases.sample_record import RECORD
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import (
    LateUsage,
    ObservationRecord,
    PowerMeasurement,
    PowerProfileKey,
    PowerProfileRecord,
)
from wattloop_operator.domain.snapshot import Snapshot, WorkloadPhase
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import Backend, StaleSnapshotError, reconcile
from wattloop_operator.reconcile import actions
from wattloop_operator.reconcile.learning.decision import Attempt, decide

NOW = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)


@dataclass(frozen=True)
class BackendHarness:
    """A backend with a job that has no recurrence yet.

    Attributes:
        key: The job. Its workloads run until they are ended.
        write_progress: Has the reporting API merge a report of so many epochs of the recurrence of this name.
        starts: How often a workload was started for the recurrence of this name.
    """

    backend: Backend
    key: JobKey
    write_progress: Callable[[str, int], None]
    starts: Callable[[str], int]

    @property
    def snapshot(self) -> Snapshot:
        found = self.backend.snapshot(self.key)
        assert found is not None
        return found

    def do(self, action: actions.Action) -> None:
        self.backend.carry_out(self.snapshot, action)

    def create(self, index: int = 0) -> TrainingAttempt:
        """Decide and create a recurrence, and read it back."""
        decided = decide(self.snapshot, Attempt(index, 0, f"slot-{index}", NOW))
        self.do(actions.CreateRecurrence(decided))
        return self.recurrence(decided.metadata.name)

    def recurrence(self, name: str) -> TrainingAttempt:
        return next(each for each in self.snapshot.recurrences if each.metadata.name == name)

    def end(self, recurrence: TrainingAttempt, result: Result) -> actions.WriteRecurrenceStatus:
        """Write an outcome."""
        status = recurrence.status.model_copy(update={"result": result, "completion_time": NOW})
        action = actions.WriteRecurrenceStatus(recurrence, status)
        self.do(action)
        return action

    def record(self, recurrence: TrainingAttempt, **changes: object) -> ObservationRecord:
        job = self.snapshot.job.metadata
        values = {
            "job_uid": job.uid,
            "namespace": job.namespace,
            "job_name": job.name,
            "recurrence": recurrence.spec.index,
            "attempt": recurrence.spec.attempt,
            "recurrence_name": recurrence.metadata.name,
        }
        return replace(RECORD, **{**values, **changes})  # type: ignore[arg-type]  # of the columns


class BackendContract:
    """The contract. A subclass defines the fixture `harness`."""

    def test_a_created_recurrence_is_in_the_next_snapshot(self, harness: BackendHarness) -> None:
        created = harness.create()
        (found,) = harness.snapshot.recurrences
        assert found == created
        assert found.spec.job_ref.uid == harness.snapshot.job.metadata.uid
        assert found.metadata.uid
        assert found.metadata.resource_version

    def test_a_recurrence_that_is_created_twice_is_created_once(self, harness: BackendHarness) -> None:
        first = harness.create()
        other = first.model_copy(update={"spec": first.spec.model_copy(update={"batch_size": 16})})
        harness.do(actions.CreateRecurrence(other))
        assert harness.snapshot.recurrences == (first,)

    def test_all_snapshots_have_the_policies_that_the_process_keeps(self, harness: BackendHarness) -> None:
        assert harness.snapshot.policies is harness.snapshot.policies

    def test_a_created_recurrence_has_no_workload(self, harness: BackendHarness) -> None:
        name = harness.create().metadata.name
        assert name not in harness.snapshot.workloads
        assert harness.starts(name) == 0

    def test_a_workload_that_is_started_twice_is_started_once(self, harness: BackendHarness) -> None:
        created = harness.create()
        harness.do(actions.StartWorkload(created))
        harness.do(actions.StartWorkload(created))
        workload = harness.snapshot.workloads[created.metadata.name]
        assert harness.starts(created.metadata.name) == 1
        assert workload.owned
        assert not workload.phase.ended

    def test_a_workload_can_be_ended_twice(self, harness: BackendHarness) -> None:
        created = harness.create()
        harness.do(actions.StartWorkload(created))
        harness.do(actions.EndWorkload(created))
        workload = harness.snapshot.workloads.get(created.metadata.name)
        assert workload is None or not workload.must_be_ended
        harness.do(actions.EndWorkload(created))

    def test_a_start_is_known_after_the_workload_was_deleted_and_before_a_status_names_it(
        self, harness: BackendHarness
    ) -> None:
        created = harness.create()
        harness.do(actions.StartWorkload(created))
        harness.do(actions.EndWorkload(created))
        name = created.metadata.name
        assert name in harness.snapshot.workloads or harness.snapshot.was_started(created)
        harness.end(harness.recurrence(name), Result.CANCELLED)
        harness.do(actions.RecordObservation(harness.record(created)))
        harness.do(actions.DeleteRecurrence(created))
        assert not harness.snapshot.unstated_starts

    def test_ending_a_workload_that_does_not_exist_is_no_error(self, harness: BackendHarness) -> None:
        harness.do(actions.EndWorkload(harness.create()))
        assert harness.snapshot.workloads == {}

    def test_an_outcome_is_read_back_as_written(self, harness: BackendHarness) -> None:
        written = harness.end(harness.create(), Result.REACHED)
        (found,) = harness.snapshot.recurrences
        assert found.status == written.status
        assert found.outcome == written.status
        assert found.spec == written.recurrence.spec
        assert found.metadata.resource_version != written.recurrence.metadata.resource_version

    @pytest.mark.parametrize("has_reported", [False, True])
    def test_an_outcome_from_before_a_report_is_rejected(self, harness: BackendHarness, has_reported: bool) -> None:
        read = harness.create()
        name = read.metadata.name
        if has_reported:
            harness.write_progress(name, 1)
            read = harness.recurrence(name)
        harness.write_progress(name, 2)
        status = read.status.model_copy(update={"result": Result.MISSING_METRIC})
        with pytest.raises(StaleSnapshotError):
            harness.do(actions.WriteRecurrenceStatus(read, status))
        found = harness.recurrence(name)
        assert (found.status.result, found.outcome, found.progress.epoch) == (None, None, 2)

    def test_a_report_changes_no_object(self, harness: BackendHarness) -> None:
        created = harness.create()
        harness.write_progress(created.metadata.name, 1)
        found = harness.recurrence(created.metadata.name)
        assert (found.metadata, found.status) == (created.metadata, created.status)
        assert found.progress_version > created.progress_version
        assert found.reported_at is not None
        status = created.status.model_copy(update={"devices": 2})
        harness.do(actions.WriteRecurrenceStatus(created, status))
        assert harness.recurrence(created.metadata.name).status.devices == 2

    @pytest.mark.parametrize("has_reported", [False, True])
    def test_no_report_is_merged_once_an_outcome_is_decided(self, harness: BackendHarness, has_reported: bool) -> None:
        name = harness.create().metadata.name
        if has_reported:
            harness.write_progress(name, 1)
        harness.end(harness.recurrence(name), Result.CRASHED)
        harness.write_progress(name, 2)
        found = harness.recurrence(name)
        assert (found.status.result, found.progress.epoch) == (Result.CRASHED, 1 if has_reported else None)

    def test_an_outcome_that_is_decided_and_not_written_is_the_one_that_is_written(
        self, harness: BackendHarness
    ) -> None:
        created = harness.create()
        # Something else has changed the object, so the row is written and the object is not.
        harness.do(actions.WriteRecurrenceStatus(created, created.status.model_copy(update={"devices": 2})))
        outdated = created.status.model_copy(update={"result": Result.CRASHED, "completion_time": NOW})
        with pytest.raises(StaleSnapshotError):
            harness.do(actions.WriteRecurrenceStatus(created, outdated))
        found = harness.recurrence(created.metadata.name)
        assert (found.status.result, found.outcome) == (None, outdated)
        harness.write_progress(created.metadata.name, 1)
        reconcile(harness.backend, harness.key, lambda: NOW)
        ended = harness.recurrence(created.metadata.name)
        assert (ended.status, ended.progress) == (outdated, Progress())

    def test_a_status_of_a_deleted_recurrence_is_rejected(self, harness: BackendHarness) -> None:
        created = harness.create()
        harness.do(actions.RecordObservation(harness.record(created)))
        harness.do(actions.DeleteRecurrence(created))
        with pytest.raises(StaleSnapshotError):
            harness.do(actions.WriteRecurrenceStatus(created, created.status))
        assert harness.snapshot.recurrences == ()

    def test_an_outcome_keeps_the_progress_until_its_recurrence_is_deleted(self, harness: BackendHarness) -> None:
        name = harness.create().metadata.name
        harness.write_progress(name, 1)
        read = harness.recurrence(name)
        harness.end(read, Result.REACHED)
        ended = harness.recurrence(name)
        assert ended.progress == read.progress != Progress()
        harness.do(actions.RecordObservation(harness.record(ended)))
        harness.do(actions.DeleteRecurrence(ended))
        assert harness.create().progress_version == 0

    def test_a_recurrence_can_be_deleted_twice(self, harness: BackendHarness) -> None:
        created = harness.create()
        harness.do(actions.StartWorkload(created))
        harness.do(actions.EndWorkload(created))
        ended = harness.recurrence(created.metadata.name)
        harness.end(ended, Result.CANCELLED)
        harness.do(actions.RecordObservation(harness.record(created)))
        harness.do(actions.DeleteRecurrence(created))
        harness.do(actions.DeleteRecurrence(created))
        assert harness.snapshot.recurrences == ()
        assert harness.snapshot.workloads == {}

    def test_of_two_records_of_an_attempt_the_first_is_kept(self, harness: BackendHarness) -> None:
        created = harness.create()
        first = harness.record(created)
        harness.do(actions.RecordObservation(first))
        harness.do(actions.RecordObservation(harness.record(created)))
        assert harness.snapshot.records == (first,)

    def test_records_are_ordered_by_recurrence(self, harness: BackendHarness) -> None:
        later, earlier = harness.create(1), harness.create(0)
        harness.do(actions.RecordObservation(harness.record(later)))
        harness.do(actions.RecordObservation(harness.record(earlier)))
        assert [record.recurrence for record in harness.snapshot.records] == [0, 1]

    def test_a_profile_is_read_back_as_recorded(self, harness: BackendHarness) -> None:
        key = PowerProfileKey(harness.snapshot.job.metadata.uid, 64, "NVIDIA A100", 1)
        measurements = (PowerMeasurement(400.0, 1000.0, 5.0, 0.1), PowerMeasurement(300.0, 800.0, 5.5, 0.1))
        harness.do(actions.RecordProfile(PowerProfileRecord(key, measurements)))
        (profile,) = harness.snapshot.profiles
        assert profile.key == key
        assert set(profile.measurements) == set(measurements)

    def test_of_two_late_usages_of_an_attempt_the_latest_is_kept(self, harness: BackendHarness) -> None:
        uid = harness.snapshot.job.metadata.uid
        for joules in (1200.0, 1300.0):
            harness.do(actions.RecordLateUsage(LateUsage(uid, 0, 1, joules, 12.0)))
        harness.do(actions.RecordLateUsage(LateUsage("another-job", 0, 1, 5.0, 5.0)))
        assert harness.snapshot.late_usages == (LateUsage(uid, 0, 1, 1300.0, 12.0),)

    def test_the_status_of_the_job_is_read_back_as_written(self, harness: BackendHarness) -> None:
        before = harness.snapshot.job
        status = before.status.model_copy(update={"observed_generation": 1, "last_schedule_time": NOW})
        harness.do(actions.WriteJobStatus(status))
        assert harness.snapshot.job.status == status
        assert harness.snapshot.job.spec == before.spec

    def test_an_event_changes_no_object(self, harness: BackendHarness) -> None:
        before = harness.snapshot
        harness.do(actions.EmitEvent(warning=True, reason="MissedStart", message="team/digits: a start was missed"))
        assert harness.snapshot == before

    def test_later_actions_do_not_change_a_snapshot(self, harness: BackendHarness) -> None:
        before = harness.snapshot
        harness.create()
        assert before.recurrences == ()

    def test_a_started_workload_is_pending_or_running(self, harness: BackendHarness) -> None:
        created = harness.create()
        harness.do(actions.StartWorkload(created))
        assert harness.snapshot.workloads[created.metadata.name].phase in (WorkloadPhase.PENDING, WorkloadPhase.RUNNING)
