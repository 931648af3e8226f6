"""Waits of an attempt end in time, whatever the difference between clocks."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import KEY, START, ModelBackend, job
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.domain.snapshot import WorkloadPhase
from wattloop_operator.reconcile.attempt.attempt_conditions import ENERGY_AWAITED, RUNNING
from wattloop_operator.reconcile.attempt.outcome import CONTROLLER_GRACE_SECONDS, GRACE_SECONDS
from wattloop_operator.reconcile.conditions import not_in_future, true_since
from wattloop_operator.reconcile.energy.agent_energy import AgentEnergy, agent_report_deadline
from wattloop_operator.reconcile.next_actions import next_actions

TIMEOUT_SECONDS = 10
DAY = 86_400
NO_REPORTS = AgentEnergy((), 1)
# How far the clocks of the API server and the kubelets are ahead of the operator's.
AHEAD = {"the same": 0, "a day ahead": DAY, "a day behind": -DAY}


@pytest.fixture
def backend() -> ModelBackend:
    """A job on one GPU whose agent does not report."""
    return ModelBackend(job(power={"mode": "None"}), devices=1, agent_report_timeout_seconds=TIMEOUT_SECONDS)


@pytest.fixture
def name(backend: ModelBackend) -> str:
    """Its first attempt, which is running."""
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.reconcile()
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
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    result = next_actions(snapshot, backend.now)
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
        backend.advance(TIMEOUT_SECONDS - 1)
        backend.reconcile()
        assert waits(backend, name)
        backend.advance(1)
        backend.reconcile()
    assert not waits(backend, name)


@pytest.mark.parametrize("set_seconds", [-DAY, -3, 3, DAY])
def test_setting_the_clock_during_the_wait_does_not_extend_it_beyond_the_timeout(
    set_seconds: float, backend: ModelBackend, name: str
) -> None:
    ends(backend, name)
    backend.reconcile()
    backend.advance(5)
    backend.advance(set_seconds)
    backend.reconcile()
    backend.advance(TIMEOUT_SECONDS)
    backend.reconcile()
    assert not waits(backend, name)


def test_the_wait_begins_at_the_end_of_an_attempt_that_was_not_observed_to_run(
    backend: ModelBackend,
) -> None:
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
    backend.advance(TIMEOUT_SECONDS)
    backend.reconcile()
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
    backend.advance(GRACE_SECONDS - 1)
    backend.reconcile()
    assert waits(backend, name)
    backend.advance(set_seconds)
    backend.reconcile()
    backend.advance(GRACE_SECONDS)
    backend.reconcile()
    assert not waits(backend, name)
    assert name not in backend.workloads


def test_a_workload_whose_pods_have_ended_has_longer_for_its_controller_to_say_so(
    backend: ModelBackend, name: str
) -> None:
    backend.workloads[name] = replace(backend.workloads[name], pods_ended=True)
    backend.report(name, sequence=1, epoch=5, metric=0.95, finished=True)
    backend.reconcile()
    backend.advance(CONTROLLER_GRACE_SECONDS - 1)
    backend.reconcile()
    assert backend.recurrences[name].status.result is None
    assert name in backend.workloads
    backend.advance(1)
    backend.reconcile()
    backend.advance(TIMEOUT_SECONDS)
    backend.reconcile()
    status = backend.recurrences[name].status
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


@given(ended_at=moments(), since=st.none() | moments(), timeout=st.integers(1, 600))
def test_the_wait_is_measured_from_the_earlier_of_both_clocks(
    ended_at: datetime, since: datetime | None, timeout: int
) -> None:
    until = agent_report_deadline(NO_REPORTS, ended_at, timeout, waiting_since=since)
    assert until is not None
    begins: Iterator[datetime] = (moment for moment in (ended_at, since) if moment is not None)
    assert until - timedelta(seconds=timeout) == min(begins)


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
