"""What every world of the engine must do alike: the model of the engine's tests, this machine, a cluster.

A world's tests make a class of `BackendContract` and a fixture `bench` that gives the world, a job in it, and the few
things that only that world knows: how a report arrives, and how often a workload was really started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from support.databases.sample_record import RECORD
from wattloop_operator.api.attempt import Result
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.records import LateUsage, ObservationRecord, PowerMeasurement, ProfileKey
from wattloop_operator.domain.snapshot import Snapshot, WorkloadPhase
from wattloop_operator.driver import Backend, StaleSnapshotError
from wattloop_operator.reconcile import actions
from wattloop_operator.reconcile.learning.decision import Attempt, decide

NOW = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)


@dataclass(frozen=True)
class BackendBench:
    """A world with a job that has no recurrence yet.

    Attributes:
        backend: The world.
        key: The job in it; a workload of it runs until it is ended.
        progress_arrives: Has the reporting API write progress of the recurrence of this name.
        starts: How often something was started for the recurrence of this name.
    """

    backend: Backend
    key: JobKey
    progress_arrives: Callable[[str], None]
    starts: Callable[[str], int]

    @property
    def snapshot(self) -> Snapshot:
        found = self.backend.snapshot(self.key)
        assert found is not None
        return found

    def do(self, action: actions.Action) -> None:
        self.backend.carry_out(self.snapshot, action)

    def create(self, index: int = 0) -> TrainingRecurrence:
        """A recurrence as the engine would decide it, created and read back."""
        made = decide(self.snapshot, Attempt(index, 0, f"slot-{index}", NOW))
        self.do(actions.CreateRecurrence(made))
        return self.recurrence(made.metadata.name)

    def recurrence(self, name: str) -> TrainingRecurrence:
        return next(each for each in self.snapshot.recurrences if each.metadata.name == name)

    def end(self, recurrence: TrainingRecurrence, result: Result) -> actions.WriteRecurrenceStatus:
        """Write an outcome."""
        status = recurrence.status.model_copy(update={"result": result, "completion_time": NOW})
        action = actions.WriteRecurrenceStatus(recurrence, status)
        self.do(action)
        return action

    def record(self, recurrence: TrainingRecurrence, **changes: object) -> ObservationRecord:
        """What is to be remembered of it."""
        job = self.snapshot.job.metadata
        values = {
            "job_uid": job.uid,
            "namespace": job.namespace,
            "job_name": job.name,
            "recurrence": recurrence.spec.index,
            "attempt": recurrence.spec.attempt,
            "recurrence_name": recurrence.metadata.name,
        }
        return ObservationRecord(**{**RECORD.__dict__, **values, **changes})


class BackendContract:
    """The contract; a subclass gives the fixture `bench`."""

    def test_a_recurrence_is_there_once_it_was_created(self, bench: BackendBench) -> None:
        created = bench.create()
        (found,) = bench.snapshot.recurrences
        assert found == created
        assert found.spec.job_ref.uid == bench.snapshot.job.metadata.uid
        assert found.metadata.uid
        assert found.metadata.resource_version

    def test_created_twice_is_created_once(self, bench: BackendBench) -> None:
        first = bench.create()
        other = first.model_copy(update={"spec": first.spec.model_copy(update={"batch_size": 16})})
        bench.do(actions.CreateRecurrence(other))
        assert bench.snapshot.recurrences == (first,)

    def test_a_created_recurrence_has_no_workload(self, bench: BackendBench) -> None:
        name = bench.create().metadata.name
        assert name not in bench.snapshot.workloads
        assert bench.starts(name) == 0

    def test_started_twice_is_started_once(self, bench: BackendBench) -> None:
        created = bench.create()
        bench.do(actions.StartWorkload(created))
        bench.do(actions.StartWorkload(created))
        workload = bench.snapshot.workloads[created.metadata.name]
        assert bench.starts(created.metadata.name) == 1
        assert workload.owned
        assert not workload.phase.ended

    def test_an_ended_workload_does_not_run_and_ending_it_again_is_no_error(self, bench: BackendBench) -> None:
        created = bench.create()
        bench.do(actions.StartWorkload(created))
        bench.do(actions.EndWorkload(created))
        workload = bench.snapshot.workloads.get(created.metadata.name)
        assert workload is None or not workload.must_be_ended
        bench.do(actions.EndWorkload(created))

    def test_a_workload_that_never_was_can_be_ended(self, bench: BackendBench) -> None:
        bench.do(actions.EndWorkload(bench.create()))
        assert bench.snapshot.workloads == {}

    def test_an_outcome_is_read_back_as_it_was_written(self, bench: BackendBench) -> None:
        written = bench.end(bench.create(), Result.REACHED)
        (found,) = bench.snapshot.recurrences
        assert found.status == written.status
        assert found.spec == written.recurrence.spec
        assert found.metadata.resource_version != written.recurrence.metadata.resource_version

    def test_a_status_made_from_what_has_changed_since_is_refused(self, bench: BackendBench) -> None:
        created = bench.create()
        bench.progress_arrives(created.metadata.name)
        status = created.status.model_copy(update={"result": Result.MISSING_METRIC})
        with pytest.raises(StaleSnapshotError):
            bench.do(actions.WriteRecurrenceStatus(created, status))
        found = bench.recurrence(created.metadata.name)
        assert found.status.result is None
        assert found.status.progress is not None

    def test_a_status_of_what_is_gone_is_refused(self, bench: BackendBench) -> None:
        created = bench.create()
        bench.do(actions.RecordObservation(bench.record(created)))
        bench.do(actions.DeleteRecurrence(created))
        with pytest.raises(StaleSnapshotError):
            bench.do(actions.WriteRecurrenceStatus(created, created.status))
        assert bench.snapshot.recurrences == ()

    def test_progress_outlives_the_engines_part_of_the_status(self, bench: BackendBench) -> None:
        name = bench.create().metadata.name
        bench.progress_arrives(name)
        read = bench.recurrence(name)
        bench.end(read, Result.REACHED)
        assert bench.recurrence(name).status.progress == read.status.progress

    def test_deleted_twice_is_deleted_once(self, bench: BackendBench) -> None:
        created = bench.create()
        bench.do(actions.StartWorkload(created))
        bench.do(actions.EndWorkload(created))
        ended = bench.recurrence(created.metadata.name)
        bench.end(ended, Result.CANCELLED)
        bench.do(actions.RecordObservation(bench.record(created)))
        bench.do(actions.DeleteRecurrence(created))
        bench.do(actions.DeleteRecurrence(created))
        assert bench.snapshot.recurrences == ()
        assert bench.snapshot.workloads == {}

    def test_an_observation_recorded_twice_is_remembered_once_as_first_said(self, bench: BackendBench) -> None:
        created = bench.create()
        first = bench.record(created)
        bench.do(actions.RecordObservation(first))
        bench.do(actions.RecordObservation(bench.record(created)))
        assert bench.snapshot.records == (first,)

    def test_records_are_ordered_by_recurrence(self, bench: BackendBench) -> None:
        later, earlier = bench.create(1), bench.create(0)
        bench.do(actions.RecordObservation(bench.record(later)))
        bench.do(actions.RecordObservation(bench.record(earlier)))
        assert [record.recurrence for record in bench.snapshot.records] == [0, 1]

    def test_a_profile_is_remembered_whole(self, bench: BackendBench) -> None:
        key = ProfileKey(bench.snapshot.job.metadata.uid, 64, "NVIDIA A100", 1)
        measurements = (PowerMeasurement(400.0, 1000.0, 5.0, 0.1), PowerMeasurement(300.0, 800.0, 5.5, 0.1))
        bench.do(actions.RecordProfile(key, measurements))
        (profile,) = bench.snapshot.profiles
        assert profile.key == key
        assert set(profile.measurements) == set(measurements)

    def test_of_an_attempt_the_latest_amendment_is_remembered(self, bench: BackendBench) -> None:
        uid = bench.snapshot.job.metadata.uid
        for joules in (1200.0, 1300.0):
            bench.do(actions.RecordLateUsage(LateUsage(uid, 0, 1, joules, 12.0)))
        bench.do(actions.RecordLateUsage(LateUsage("another-job", 0, 1, 5.0, 5.0)))
        assert bench.snapshot.late_usages == (LateUsage(uid, 0, 1, 1300.0, 12.0),)

    def test_the_status_of_the_job_is_read_back_as_it_was_written(self, bench: BackendBench) -> None:
        before = bench.snapshot.job
        status = before.status.model_copy(update={"observed_generation": 1, "next_schedule_time": NOW})
        bench.do(actions.WriteJobStatus(status))
        assert bench.snapshot.job.status == status
        assert bench.snapshot.job.spec == before.spec

    def test_telling_the_user_changes_nothing(self, bench: BackendBench) -> None:
        before = bench.snapshot
        bench.do(actions.EmitEvent(warning=True, reason="MissedStart", message="team/digits: a start was missed"))
        assert bench.snapshot == before

    def test_a_snapshot_is_not_changed_by_what_is_done_later(self, bench: BackendBench) -> None:
        before = bench.snapshot
        bench.create()
        assert before.recurrences == ()

    def test_phases_tell_what_has_ended(self, bench: BackendBench) -> None:
        created = bench.create()
        bench.do(actions.StartWorkload(created))
        assert bench.snapshot.workloads[created.metadata.name].phase in (WorkloadPhase.PENDING, WorkloadPhase.RUNNING)
