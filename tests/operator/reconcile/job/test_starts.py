"""When recurrences start: concurrency, suspension, deadlines, requests, limits."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.backends.model_backend import KEY, START, ModelBackend, job
from wattloop.errors import OperationError
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.driver import reconcile
from wattloop_operator.reconcile.actions import (
    Action,
    CreateRecurrence,
    EmitEvent,
    StartWorkload,
    WriteJobStatus,
    WriteRecurrenceStatus,
)
from wattloop_operator.reconcile.next_actions import next_actions

Backends = Callable[..., ModelBackend]


def reason(backend: ModelBackend) -> str:
    return next(each.reason for each in backend.job.status.conditions if each.type == "Ready")


def ready_message(backend: ModelBackend) -> str:
    return next(each.message for each in backend.job.status.conditions if each.type == "Ready")


class StatusWrites(ModelBackend):
    """Counts the writes of the job's status."""

    count = 0

    def carry_out(self, snapshot: Snapshot, action: Action) -> None:
        self.count += isinstance(action, WriteJobStatus)
        super().carry_out(snapshot, action)


def test_a_start_writes_the_status_of_its_job_once_and_after_the_starts_of_jobs_that_wait() -> None:
    backend = StatusWrites(job())
    assert reconcile(backend, KEY, backend.clock, others_wait=lambda: True) == backend.now
    (name,) = backend.workloads
    assert (backend.recurrences[name].status.workload_ref, backend.count) == (None, 0)
    reconcile(backend, KEY, backend.clock, others_wait=lambda: True)
    assert (backend.count, list(backend.job.status.active)) == (1, [name])
    alone = StatusWrites(job())
    alone.reconcile()
    assert (alone.count, alone.job.status) == (1, backend.job.status)


def test_a_workload_that_is_deleted_before_a_status_names_it_is_not_started_again() -> None:
    backend = ModelBackend(job())
    reconcile(backend, KEY, backend.clock, others_wait=lambda: True)
    (name,) = backend.workloads
    del backend.workloads[name]
    backend.reconcile()
    assert backend.recurrences[name].status.result is Result.CANCELLED
    assert backend.started == {name: 1}


def test_a_status_that_waits_is_written_with_the_next_start_at_the_latest() -> None:
    backend = StatusWrites(job(concurrencyPolicy="Allow"))
    reconcile(backend, KEY, backend.clock, others_wait=lambda: True)
    first = backend.running[:1]
    backend.advance(3600)
    reconcile(backend, KEY, backend.clock, others_wait=lambda: True)
    assert (list(backend.job.status.active), len(backend.running)) == (first, 2)


def test_a_recurrence_that_is_deleted_before_the_status_states_it_is_not_run_again(backend: ModelBackend) -> None:
    reconcile(backend, KEY, backend.clock, others_wait=lambda: True)
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    deleted = replace(snapshot, recurrences=(), workloads={}, deleted_recurrences=snapshot.recurrences)
    written, event = next_actions(deleted, backend.now).actions
    assert isinstance(written, WriteJobStatus), "its Event ends the memory of it, and the write may fail"
    assert isinstance(event, EmitEvent)
    assert written.status.totals.recurrences == 1
    assert written.status.last_schedule_time == START


class FirstDeletedAtOnce(StatusWrites):
    """Its user deletes the first recurrence as soon as it exists; it is remembered until its Event."""

    def snapshot(self, key: JobKey) -> Snapshot | None:
        snapshot = super().snapshot(key)
        assert snapshot is not None
        deleted = () if self.events else tuple(each for each in snapshot.recurrences if each.spec.index == 0)
        kept = tuple(each for each in snapshot.recurrences if each.spec.index > 0)
        return replace(snapshot, recurrences=kept, deleted_recurrences=deleted)


def test_the_status_of_a_recurrence_that_is_deleted_while_it_starts_waits_for_no_other_job() -> None:
    backend = FirstDeletedAtOnce(job())
    reconcile(backend, KEY, backend.clock, others_wait=lambda: True)
    assert (backend.job.status.totals.recurrences, backend.job.status.last_schedule_time) == (1, START)


def test_the_status_of_a_deleted_recurrence_waits_for_no_other_job_when_another_one_starts() -> None:
    backend = FirstDeletedAtOnce(job(runRequest="now"))
    reconcile(backend, KEY, backend.clock, others_wait=lambda: True)
    assert (backend.started.total(), backend.job.status.totals.recurrences) == (1, 2)


def test_a_status_that_waits_is_written_with_the_next_change_that_is_no_step_of_a_start(backend: ModelBackend) -> None:
    reconcile(backend, KEY, backend.clock, others_wait=lambda: True)
    backend.run_workload(backend.running[0])
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    assert [type(each) for each in next_actions(snapshot, START).actions] == [WriteRecurrenceStatus, WriteJobStatus]


class FailingStarts(StatusWrites):
    """Can start no workload."""

    def carry_out(self, snapshot: Snapshot, action: Action) -> None:
        if isinstance(action, StartWorkload):
            raise OperationError("the API server rejects it")
        super().carry_out(snapshot, action)


def test_the_status_states_a_recurrence_whose_workload_cannot_be_started() -> None:
    backend = FailingStarts(job())
    for _ in range(2):
        with pytest.raises(OperationError, match="rejects"):
            backend.reconcile()
    assert list(backend.job.status.active) == backend.running
    assert backend.count == 1


class FailingCreation(StatusWrites):
    """Can create no TrainingRecurrence while it is broken."""

    broken = True

    def carry_out(self, snapshot: Snapshot, action: Action) -> None:
        if isinstance(action, CreateRecurrence) and self.broken:
            raise OperationError("the API server rejects it")
        super().carry_out(snapshot, action)


@pytest.mark.parametrize(
    ("changes", "missed"), [({"schedule": None, "runRequest": "now"}, 0), ({"concurrencyPolicy": "Allow"}, 3)]
)
def test_a_creation_that_fails_leaves_a_status_without_the_run_request_or_missed_slots(
    changes: dict[str, object], missed: int
) -> None:
    backend = FailingCreation(job(**changes))
    backend.advance(missed * 3600)
    for _ in range(2):
        with pytest.raises(OperationError, match="rejects"):
            backend.reconcile()
    status = backend.job.status
    assert (reason(backend), status.last_run_request, status.totals.missed) == ("Scheduled", None, 0)
    assert backend.count == 1
    backend.broken = False
    backend.reconcile()
    status = backend.job.status
    assert (status.totals.missed, status.last_run_request) == (missed, changes.get("runRequest"))
    assert len(status.active) == 1


class FailingFirstStatus(StatusWrites):
    """Cannot write the job's status the first time."""

    def carry_out(self, snapshot: Snapshot, action: Action) -> None:
        super().carry_out(snapshot, action)
        if isinstance(action, WriteJobStatus) and self.count == 1:
            self.job = snapshot.job
            raise OperationError("timed out")


def test_a_run_request_whose_first_status_write_fails_is_not_run_again_when_it_is_deleted() -> None:
    backend = FailingFirstStatus(job(schedule=None, runRequest="now"))
    with pytest.raises(OperationError, match="timed out"):
        backend.reconcile()
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    deleted = replace(snapshot, recurrences=(), deleted_recurrences=snapshot.recurrences)
    written = next_actions(deleted, backend.now).actions[0]
    assert isinstance(written, WriteJobStatus)
    assert written.status.last_run_request == "now"
    backend.reconcile()
    backend.delete(backend.running[0])
    backend.reconcile()
    assert backend.running == []


def test_with_forbid_a_due_run_waits_for_the_running_one(backend: ModelBackend) -> None:
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    backend.advance(3 * 3600)
    backend.reconcile()
    assert backend.running == [first]
    backend.report(first, epoch=5, metric=0.95, finished=True)
    backend.end_workload(first)
    backend.reconcile()
    second = backend.recurrences[backend.running[0]]
    assert (second.spec.index, (second.spec.scheduled_time - START).total_seconds()) == (1, 3 * 3600)
    assert backend.job.status.totals.missed == 2
    assert [each.reason for each in backend.events] == ["MissedStarts"]


def test_with_allow_a_due_run_starts_beside_the_running_one(backend_with: Backends) -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    backend.reconcile()
    backend.advance(3600)
    backend.reconcile()
    assert [backend.recurrences[name].spec.index for name in backend.running] == [0, 1]


def test_with_replace_the_running_one_is_cancelled_first(backend_with: Backends) -> None:
    backend = backend_with(concurrencyPolicy="Replace")
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    backend.advance(3600)
    backend.reconcile()
    assert backend.recurrences[first].status.result is Result.CANCELLED
    assert first not in backend.workloads
    assert [backend.recurrences[name].spec.index for name in backend.running] == [1]


def test_a_suspended_job_does_not_end_its_run_and_resumes_with_one_run(backend: ModelBackend) -> None:
    backend.reconcile()
    first = backend.running[0]
    backend.change_spec(suspend=True)
    backend.run_workload(first)
    backend.report(first, metric=0.95, finished=True)
    backend.end_workload(first)
    backend.advance(1000 * 3600)
    backend.reconcile()
    assert backend.running == []
    assert reason(backend) == "Suspended"
    backend.change_spec(suspend=False)
    backend.reconcile()
    assert len(backend.running) == 1
    assert len(backend.recurrences) == 2


def test_a_start_after_its_deadline_is_missed_once(backend_with: Backends) -> None:
    backend = backend_with(startingDeadlineSeconds=60)
    backend.advance(61)
    backend.reconcile()
    assert backend.running == []
    assert backend.job.status.last_schedule_time == START
    assert backend.job.status.totals.missed == 1
    backend.reconcile()
    assert backend.job.status.totals.missed == 1
    assert [each.reason for each in backend.events] == ["MissedStart"]


def test_a_run_request_starts_one_run(backend_with: Backends) -> None:
    backend = backend_with(schedule=None, runRequest="2026-03-01")
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    backend.delete(name)
    backend.reconcile()
    assert backend.running == []
    backend.change_spec(runRequest="2026-03-02")
    backend.reconcile()
    assert len(backend.running) == 1


def test_a_deleted_recurrence_is_not_run_again(backend: ModelBackend) -> None:
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    backend.delete(name)
    backend.lose_database()
    backend.reconcile()
    assert backend.running == []


def test_a_job_stops_at_its_maximum_number_of_recurrences(backend_with: Backends) -> None:
    backend = backend_with(continuous=True, maxRecurrences=3)
    for _ in range(5):
        backend.reconcile()
        for name in backend.running:
            backend.run_workload(name)
            backend.report(name, metric=0.95, finished=True)
            backend.end_workload(name)
        backend.advance(1)
    backend.reconcile()
    assert len(backend.records) == 3
    assert reason(backend) == "AllStarted"


@pytest.mark.parametrize(
    ("option", "given", "maximum"),
    [("", "spec.continuous", "spec.maxRecurrences"), ("--recurrences", "--recurrences", "--recurrences")],
)
def test_a_reason_names_what_the_user_gave_the_option_of_the_command_or_the_field(
    backend_with: Backends, option: str, given: str, maximum: str
) -> None:
    backend = backend_with(continuous=True, maxRecurrences=2)
    backend.recurrences_option = option
    backend.reconcile()
    name = backend.running[0]
    backend.change_spec(runRequest="2026-03-02")
    backend.reconcile()
    waits = f"the next run waits for recurrence 0 ({name}) to end, because {given} has one run at a time"
    assert ready_message(backend) == waits
    for _ in range(2):
        name = backend.running[0]
        backend.run_workload(name)
        backend.report(name, metric=0.95, finished=True)
        backend.end_workload(name)
        backend.reconcile()
    assert ready_message(backend) == f"all 2 recurrences of {maximum} were started"


@pytest.mark.parametrize(
    ("changes", "refusal", "expected"),
    [
        ({"schedule": "0 0 31 2 *"}, "", "InvalidSchedule"),
        ({}, "Job is invalid: spec.template.spec.containers[0].image: Required value", "TemplateRejected"),
        ({"suspend": True}, "", "Suspended"),
        ({"reporting": {"source": "Logs", "pattern": "(?P<metric>"}}, "", "InvalidPattern"),
        ({"reporting": {"source": "Logs", "pattern": "accuracy (.*)"}}, "", "InvalidPattern"),
    ],
)
def test_a_job_that_cannot_start_gives_the_reason(
    backend_with: Backends, changes: dict[str, object], refusal: str, expected: str
) -> None:
    backend = backend_with(**changes)
    backend.refusal = refusal
    backend.reconcile()
    assert backend.recurrences == {}
    assert reason(backend) == expected


def test_the_job_is_reconciled_again_at_its_next_start(backend: ModelBackend) -> None:
    backend.reconcile()
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    result = next_actions(snapshot, backend.now)
    assert result.actions == ()
    assert result.wake_at == snapshot.job.status.next_start
