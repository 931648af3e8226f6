"""When recurrences start: concurrency, suspension, deadlines, requests, limits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import KEY, ModelBackend, backend_with, job
from support.backends.sample_reports import START
from wattloop.errors import OperationError
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.cron import ScheduleError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec
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
from wattloop_operator.reconcile.job.start import MAX_MISSED_COUNTED, Slots, find_slots
from wattloop_operator.reconcile.next_actions import next_actions


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
    assert backend.status_of(name).result is Result.CANCELLED
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
    snapshot = backend.state
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
    snapshot = backend.state
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
    snapshot = backend.state
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
    backend.reconcile_after(3 * 3600)
    assert backend.running == [first]
    backend.finish(first, epoch=5, metric=0.95)
    second = backend.recurrences[backend.running[0]]
    assert (second.spec.index, (second.spec.scheduled_time - START).total_seconds()) == (1, 3 * 3600)
    assert backend.job.status.totals.missed == 2
    assert [each.reason for each in backend.events] == ["MissedStarts"]


def test_with_allow_a_due_run_starts_beside_the_running_one() -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    backend.reconcile()
    backend.reconcile_after(3600)
    assert [backend.recurrences[name].spec.index for name in backend.running] == [0, 1]


def test_with_replace_the_running_one_is_cancelled_first() -> None:
    backend = backend_with(concurrencyPolicy="Replace")
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    assert backend.status_of(first, 3600).result is Result.CANCELLED
    assert first not in backend.workloads
    assert [backend.recurrences[name].spec.index for name in backend.running] == [1]


def test_a_suspended_job_does_not_end_its_run_and_resumes_with_one_run(backend: ModelBackend) -> None:
    backend.reconcile()
    first = backend.running[0]
    backend.change_spec(suspend=True)
    backend.run_workload(first)
    backend.report(first, metric=0.95, finished=True)
    backend.end_workload(first)
    backend.reconcile_after(1000 * 3600)
    assert backend.running == []
    assert reason(backend) == "Suspended"
    backend.edit(suspend=False)
    assert len(backend.running) == 1
    assert len(backend.recurrences) == 2


def test_a_start_after_its_deadline_is_missed_once() -> None:
    backend = backend_with(startingDeadlineSeconds=60)
    backend.reconcile_after(61)
    assert backend.running == []
    assert backend.job.status.last_schedule_time == START
    assert backend.job.status.totals.missed == 1
    backend.reconcile()
    assert backend.job.status.totals.missed == 1
    assert [each.reason for each in backend.events] == ["MissedStart"]


def test_a_run_request_starts_one_run() -> None:
    backend = backend_with(schedule=None, runRequest="2026-03-01")
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.finish(name, metric=0.95)
    backend.delete(name)
    backend.reconcile()
    assert backend.running == []
    backend.edit(runRequest="2026-03-02")
    assert len(backend.running) == 1


def test_a_deleted_recurrence_is_not_run_again(backend: ModelBackend) -> None:
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.finish(name, metric=0.95)
    backend.delete(name)
    backend.lose_database()
    backend.reconcile()
    assert backend.running == []


def test_a_job_stops_at_its_maximum_number_of_recurrences() -> None:
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
    option: str, given: str, maximum: str
) -> None:
    backend = backend_with(continuous=True, maxRecurrences=2)
    backend.recurrences_option = option
    backend.reconcile()
    name = backend.running[0]
    backend.edit(runRequest="2026-03-02")
    waits = f"the next run waits for recurrence 0 ({name}) to end, because {given} has one run at a time"
    assert ready_message(backend) == waits
    for _ in range(2):
        name = backend.running[0]
        backend.run_workload(name)
        backend.finish(name, metric=0.95)
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
def test_a_job_that_cannot_start_gives_the_reason(changes: dict[str, object], refusal: str, expected: str) -> None:
    backend = backend_with(**changes)
    backend.refusal = refusal
    backend.reconcile()
    assert backend.recurrences == {}
    assert reason(backend) == expected


def test_the_job_is_reconciled_again_at_its_next_start(backend: ModelBackend) -> None:
    backend.reconcile()
    snapshot = backend.state
    result = next_actions(snapshot, backend.now)
    assert result.actions == ()
    assert result.wake_at == snapshot.job.status.next_start


PARIS = ZoneInfo("Europe/Paris")
CREATED = datetime(2026, 1, 1, tzinfo=UTC)


def cron(schedule: str, time_zone: str = "Etc/UTC") -> RecurringTrainingJobSpec:
    return job(schedule=schedule, timeZone=time_zone).spec


def found(spec: RecurringTrainingJobSpec, now: datetime, handled: datetime | None = None) -> Slots:
    return find_slots(spec, created=CREATED, handled=handled, last_end=None, now=now)


@pytest.mark.parametrize(
    ("schedule", "day", "local_times"),
    [
        pytest.param("30 2 * * *", (2026, 3, 29), [(3, 0)], id="a local time that is skipped runs right after the gap"),
        pytest.param("30 2 * * *", (2026, 10, 25), [(2, 30)], id="a local time that comes twice runs once"),
        pytest.param("0 3 * * *", (2026, 3, 29), [(3, 0)], id="a local time after the gap runs once"),
        pytest.param("0 12 * * *", (2026, 7, 1), [(12, 0)], id="noon is noon in summer"),
        pytest.param("0 12 * * *", (2026, 12, 1), [(12, 0)], id="noon is noon in winter"),
    ],
)
def test_a_schedule_follows_daylight_saving(
    schedule: str, day: tuple[int, int, int], local_times: list[tuple[int, int]]
) -> None:
    spec = cron(schedule, "Europe/Paris")
    midnight = datetime(*day, tzinfo=PARIS).astimezone(UTC)
    moment, starts = midnight - timedelta(seconds=1), []
    while True:
        next_slot = found(spec, moment, handled=moment).next_slot
        if next_slot >= midnight + timedelta(hours=24):
            break
        starts.append(next_slot.astimezone(PARIS))
        moment = next_slot
    assert [(start.hour, start.minute) for start in starts] == local_times


@given(
    schedule=st.sampled_from(
        ["* * * * *", "*/7 * * * *", "0 3 * * *", "30 2 * * 1-5", "0 0 1 * *", "15 2 29 2 *", "@weekly", "5 4 * * 0"]
    ),
    time_zone=st.sampled_from(["Etc/UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe"]),
    start=st.datetimes(datetime(2026, 1, 2), datetime(2028, 1, 1)),  # noqa: DTZ001  made aware below
    seconds=st.integers(0, 3 * 86400),
)
def test_the_due_slot_is_the_last_one_that_forward_iteration_finds(
    schedule: str, time_zone: str, start: datetime, seconds: int
) -> None:
    spec = cron(schedule, time_zone)
    handled = start.replace(tzinfo=UTC, microsecond=0)
    now = handled + timedelta(seconds=seconds)
    passed, moment = [], handled
    for _ in range(MAX_MISSED_COUNTED + 2):
        next_slot = found(spec, moment, handled=moment).next_slot
        assert next_slot > moment
        if next_slot > now:
            break
        passed.append(next_slot)
        moment = next_slot
    result = found(spec, now, handled)
    if len(passed) <= MAX_MISSED_COUNTED:
        assert result.due == (passed[-1] if passed else None)
        assert result.missed == max(len(passed) - 1, 0)
    else:
        assert result.missed == MAX_MISSED_COUNTED


def test_years_of_missed_starts_give_one_due_slot() -> None:
    result = found(cron("* * * * *"), datetime(2046, 1, 1, 0, 0, 30, tzinfo=UTC))
    assert result.due == datetime(2046, 1, 1, tzinfo=UTC)
    assert result.missed == MAX_MISSED_COUNTED
    assert result.next_slot == datetime(2046, 1, 1, 0, 1, tzinfo=UTC)


def test_a_clock_that_jumps_back_makes_no_slot_due_again() -> None:
    handled = datetime(2026, 5, 1, 12, tzinfo=UTC)
    result = found(cron("0 * * * *"), handled - timedelta(hours=5), handled)
    assert result.due is None
    assert result.next_slot == handled + timedelta(hours=1)


def test_a_continuous_job_starts_when_the_last_run_ends() -> None:
    spec = job(continuous=True).spec
    end = CREATED + timedelta(seconds=100)
    assert found(spec, CREATED).due == CREATED
    before = find_slots(spec, created=CREATED, handled=CREATED, last_end=end, now=end - timedelta(seconds=1))
    assert before == Slots(None, 0, end)
    assert find_slots(spec, created=CREATED, handled=CREATED, last_end=end, now=end).due == end


def test_a_job_without_a_schedule_is_never_due() -> None:
    assert found(job(schedule=None).spec, CREATED) == Slots(None, 0, None)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (cron("61 * * * *"), "schedule: found '61 \\* \\* \\* \\*'"),
        (cron("0 0 31 2 *"), "schedule: found"),
        (cron("0 0 * * *", "Europe/Atlantis"), "timeZone: found 'Europe/Atlantis'"),
    ],
)
def test_an_invalid_schedule_names_what_was_found(spec: RecurringTrainingJobSpec, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        found(spec, CREATED)
