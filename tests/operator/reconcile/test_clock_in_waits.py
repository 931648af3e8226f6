"""Waits of an attempt end in time, whatever the difference between clocks."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, backend_with, job
from support.backends.sample_reports import START
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.domain.snapshot import WorkloadPhase
from wattloop_operator.reconcile.attempt.attempt_conditions import ENERGY_AWAITED, RUNNING
from wattloop_operator.reconcile.attempt.outcome import CONTROLLER_GRACE_SECONDS, GRACE_SECONDS
from wattloop_operator.reconcile.conditions import not_in_future, true_since
from wattloop_operator.reconcile.next_actions import next_actions

TIMEOUT_SECONDS = 10
DAY = 86_400
# How far the clocks of the API server and the kubelets are ahead of the operator's.
AHEAD = {"the same": 0, "a day ahead": DAY, "a day behind": -DAY}


@pytest.fixture
def backend() -> ModelBackend:
    """A job on one GPU whose agent does not report."""
    return ModelBackend(job(power={"mode": "None"}), devices=1, agent_report_timeout_seconds=TIMEOUT_SECONDS)


@pytest.fixture
def name(backend: ModelBackend) -> str:
    """Its first attempt, which is running."""
    name = backend.start_attempt()
    backend.advance(20)
    return name


def ends(backend: ModelBackend, name: str, ahead_seconds: float = 0) -> None:
    """The attempt reaches its target. Its end is written by a clock that is ahead by so much."""
    backend.report(name, sequence=1, epoch=5, metric=0.95, finished=True)
    backend.end_workload(name)
    ended_at = backend.now + timedelta(seconds=ahead_seconds)
    backend.workloads[name] = replace(backend.workloads[name], ended_at=ended_at)


def waits(backend: ModelBackend, name: str) -> bool:
    return backend.recurrences[name].status.result is None


def next_wake(backend: ModelBackend) -> datetime | None:
    result = next_actions(backend.state, backend.now)
    assert not result.actions, "no action was due"
    return result.wake_at


@pytest.mark.parametrize("ahead_seconds", AHEAD.values(), ids=AHEAD.keys())
def test_the_final_report_is_awaited_no_longer_than_the_timeout(
    ahead_seconds: float, backend: ModelBackend, name: str
) -> None:
    ends(backend, name, ahead_seconds)
    backend.reconcile()
    if ahead_seconds >= 0:
        assert waits(backend, name)
        assert next_wake(backend) == backend.now + timedelta(seconds=TIMEOUT_SECONDS)
        backend.reconcile_after(TIMEOUT_SECONDS - 1)
        assert waits(backend, name)
        backend.reconcile_after(1)
    assert not waits(backend, name)


@pytest.mark.parametrize("set_seconds", [-DAY, -3, 3, DAY])
def test_setting_the_clock_during_the_wait_does_not_extend_it_beyond_the_timeout(
    set_seconds: float, backend: ModelBackend, name: str
) -> None:
    ends(backend, name)
    backend.reconcile()
    backend.advance(5)
    backend.reconcile_after(set_seconds)
    backend.reconcile_after(TIMEOUT_SECONDS)
    assert not waits(backend, name)


def test_the_wait_begins_at_the_end_of_an_attempt_that_was_not_observed_to_run(backend: ModelBackend) -> None:
    backend.reconcile()
    name = backend.running[0]
    backend.advance(600)
    ends(backend, name)
    backend.reconcile()
    assert waits(backend, name)
    assert next_wake(backend) == backend.now + timedelta(seconds=TIMEOUT_SECONDS)


def test_the_condition_of_the_wait_is_removed_with_the_outcome(backend: ModelBackend, name: str) -> None:
    ends(backend, name, DAY)
    backend.reconcile()
    assert true_since(backend.recurrences[name].status.conditions, ENERGY_AWAITED) == backend.now
    backend.reconcile_after(TIMEOUT_SECONDS)
    assert ENERGY_AWAITED not in {each.type for each in backend.recurrences[name].status.conditions}


@pytest.mark.parametrize("started_ahead_seconds", AHEAD.values(), ids=AHEAD.keys())
@pytest.mark.parametrize("set_seconds", [0, -DAY, DAY])
def test_a_finished_process_has_exactly_its_grace_period(
    set_seconds: float, started_ahead_seconds: float, backend: ModelBackend, name: str
) -> None:
    started_at = START + timedelta(seconds=started_ahead_seconds)
    backend.workloads[name] = replace(backend.workloads[name], started_at=started_at)
    backend.report(name, sequence=1, epoch=5, metric=0.95, finished=True)
    backend.reconcile()
    backend.reconcile_after(GRACE_SECONDS - 1)
    assert waits(backend, name)
    backend.reconcile_after(set_seconds)
    backend.reconcile_after(GRACE_SECONDS)
    assert not waits(backend, name)
    assert name not in backend.workloads


def test_a_workload_whose_pods_have_ended_has_longer_for_its_controller_to_say_so(
    backend: ModelBackend, name: str
) -> None:
    backend.workloads[name] = replace(backend.workloads[name], pods_ended=True)
    backend.report(name, sequence=1, epoch=5, metric=0.95, finished=True)
    backend.reconcile()
    assert backend.status_of(name, CONTROLLER_GRACE_SECONDS - 1).result is None
    assert name in backend.workloads
    backend.reconcile_after(1)
    status = backend.status_of(name, TIMEOUT_SECONDS)
    assert status.result == "Reached"
    assert "its pods ended, but not its Job within 300 s; see its controller" in status.message


def test_a_training_whose_pods_have_ended_waits_for_no_pod_until_its_controller_says_so(
    backend: ModelBackend, name: str
) -> None:
    before = backend.recurrences[name].status
    ended = {"phase": WorkloadPhase.PENDING, "pods_ended": True, "message": "its Job has no pod yet"}
    backend.workloads[name] = replace(backend.workloads[name], **ended)
    backend.reconcile()
    assert backend.recurrences[name].status == before
    assert true_since(before.conditions, RUNNING) is not None
    # Its controller creates another pod instead, soon or at once.
    running = backend.workloads[name]
    for changes in ({"backs_off": True}, {"pods_ended": False}):
        backend.workloads[name] = replace(running, **changes)
        backend.reconcile()
        assert true_since(backend.recurrences[name].status.conditions, RUNNING) is None


def moments() -> st.SearchStrategy[datetime]:
    return st.integers(-2 * DAY, 2 * DAY).map(lambda seconds: START + timedelta(seconds=seconds))


@given(st.lists(moments(), max_size=4), moments())
def test_conditions_in_the_future_only_change_their_time(changes: list[datetime], now: datetime) -> None:
    before = tuple(
        Condition(type=f"Type{index}", status=ConditionStatus.TRUE, reason="Because", last_transition_time=changed)
        for index, changed in enumerate(changes)
    )
    after = not_in_future(before, now)
    assert [each.last_transition_time for each in after] == [min(changed, now) for changed in changes]
    assert [each.type for each in after] == [each.type for each in before]
    assert not_in_future(after, now) == after


def finish_run(continuous: ModelBackend) -> None:
    """The running recurrence reaches its target."""
    (name,) = continuous.running
    continuous.run_workload(name)
    continuous.finish(name, metric=0.95)


@pytest.fixture
def continuous() -> ModelBackend:
    """An hourly job that has run."""
    made = backend_with()
    made.reconcile()
    made.reconcile_after(3600)
    while made.running:
        finish_run(made)
    return made


def assert_next_start_after_a_day(continuous: ModelBackend, known: set[str]) -> None:
    """The job ran a day ahead of the clock: it starts nothing before that time."""
    for _ in range(23):
        continuous.reconcile_after(3600)
    assert set(continuous.recurrences) == known
    continuous.reconcile_after(2 * 3600)
    assert len(continuous.running) == 1


def test_after_the_clock_is_set_back_nothing_starts_twice(continuous: ModelBackend) -> None:
    before = set(continuous.recurrences)
    continuous.advance(-DAY)
    assert_next_start_after_a_day(continuous, before)


def test_after_the_clock_is_set_ahead_one_run_starts_and_the_others_are_missed(continuous: ModelBackend) -> None:
    before = len(continuous.recurrences)
    continuous.reconcile_after(DAY)
    assert len(continuous.recurrences) == before + 1
    assert continuous.job.status.totals.missed == 23


def test_after_the_clock_is_set_ahead_and_back_the_next_start_waits_for_that_time(continuous: ModelBackend) -> None:
    continuous.reconcile_after(DAY)
    finish_run(continuous)
    ahead = set(continuous.recurrences)
    continuous.advance(-DAY)
    assert_next_start_after_a_day(continuous, ahead)


def test_a_new_job_starts_although_the_clock_is_behind_the_api_servers() -> None:
    continuous = backend_with(continuous=True, maxRecurrences=1)
    continuous.reconcile_after(-DAY)
    finish_run(continuous)
    assert len(continuous.recurrences) == 1
