"""What an attempt waits for: no longer than the patience for it, whatever the operator's clock says beside others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import KEY, START, ModelBackend, job
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.domain.snapshot import WorkloadPhase, WorkloadState
from wattloop_operator.reconcile.attempt.conditions import ENERGY_AWAITED
from wattloop_operator.reconcile.attempt.outcome import GRACE_SECONDS
from wattloop_operator.reconcile.conditions import not_in_future, true_since
from wattloop_operator.reconcile.energy.agent_energy import AgentEnergy, agent_report_deadline
from wattloop_operator.reconcile.next_actions import next_actions

Reconcile = Callable[[ModelBackend], None]
PATIENCE = 10
DAY = 86_400
SILENT = AgentEnergy((), 1)
# How far the clock of the API server and the kubelets is ahead of the operator's.
AHEAD = {"as the operator's": 0, "a day ahead": DAY, "a day behind": -DAY}


@pytest.fixture
def backend() -> ModelBackend:
    """A job on one GPU whose agent is silent."""
    return ModelBackend(job(power={"limit": {"mode": "None"}}), devices=1, agent_patience_seconds=PATIENCE)


@pytest.fixture
def name(backend: ModelBackend, settled: Reconcile) -> str:
    """Its first attempt, which runs."""
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    settled(backend)
    backend.pass_seconds(20)
    return name


def ends(backend: ModelBackend, name: str, ahead_seconds: float = 0) -> None:
    """The attempt reaches its target, and its end is written down by a clock that is so far ahead."""
    backend.report(name, sequence=1, epoch=5, metric=0.95, finished=True)
    backend.end_workload(name)
    ended_at = backend.now + timedelta(seconds=ahead_seconds)
    backend.workloads[name] = replace(backend.workloads[name], ended_at=ended_at)


def waits(backend: ModelBackend, name: str) -> bool:
    return backend.recurrences[name].status.result is None


def next_look(backend: ModelBackend) -> datetime | None:
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    result = next_actions(snapshot, backend.now)
    assert not result.actions, "it had settled"
    return result.wake_at


@pytest.mark.parametrize("ahead_seconds", AHEAD.values(), ids=AHEAD.keys())
def test_the_last_word_is_waited_for_no_longer_than_the_patience(
    ahead_seconds: float, backend: ModelBackend, name: str, settled: Reconcile
) -> None:
    ends(backend, name, ahead_seconds)
    settled(backend)
    if ahead_seconds >= 0:
        assert waits(backend, name)
        assert next_look(backend) == backend.now + timedelta(seconds=PATIENCE)
        backend.pass_seconds(PATIENCE - 1)
        settled(backend)
        assert waits(backend, name)
        backend.pass_seconds(1)
        settled(backend)
    assert not waits(backend, name)


@pytest.mark.parametrize("set_seconds", [-DAY, -3, 3, DAY])
def test_a_clock_that_is_set_in_the_midst_of_the_wait_makes_it_no_longer_than_the_patience_from_then(
    set_seconds: float, backend: ModelBackend, name: str, settled: Reconcile
) -> None:
    ends(backend, name)
    settled(backend)
    backend.pass_seconds(5)
    backend.pass_seconds(set_seconds)
    settled(backend)
    backend.pass_seconds(PATIENCE)
    settled(backend)
    assert not waits(backend, name)


def test_an_attempt_that_was_not_seen_to_run_waits_from_its_end_not_from_when_it_was_started(
    backend: ModelBackend, settled: Reconcile
) -> None:
    settled(backend)
    name = backend.running[0]
    backend.pass_seconds(600)
    ends(backend, name)
    settled(backend)
    assert waits(backend, name)
    assert next_look(backend) == backend.now + timedelta(seconds=PATIENCE)


def test_the_condition_that_it_waits_goes_with_the_wait(backend: ModelBackend, name: str, settled: Reconcile) -> None:
    ends(backend, name, DAY)
    settled(backend)
    assert true_since(backend.recurrences[name].status.conditions, ENERGY_AWAITED) == backend.now
    backend.pass_seconds(PATIENCE)
    settled(backend)
    assert ENERGY_AWAITED not in {each.type for each in backend.recurrences[name].status.conditions}


@pytest.mark.parametrize("started_ahead_seconds", AHEAD.values(), ids=AHEAD.keys())
@pytest.mark.parametrize("set_seconds", [0, -DAY, DAY])
def test_a_process_that_is_done_has_its_grace_and_no_more(
    set_seconds: float, started_ahead_seconds: float, backend: ModelBackend, name: str, settled: Reconcile
) -> None:
    started_at = START + timedelta(seconds=started_ahead_seconds)
    backend.workloads[name] = replace(backend.workloads[name], started_at=started_at)
    backend.report(name, sequence=1, epoch=5, metric=0.95, finished=True)
    settled(backend)
    backend.pass_seconds(GRACE_SECONDS - 1)
    settled(backend)
    assert waits(backend, name)
    backend.pass_seconds(set_seconds)
    settled(backend)
    backend.pass_seconds(GRACE_SECONDS)
    settled(backend)
    assert not waits(backend, name)
    assert name not in backend.workloads


def moments() -> st.SearchStrategy[datetime]:
    return st.integers(-2 * DAY, 2 * DAY).map(lambda seconds: START + timedelta(seconds=seconds))


@given(ended_at=moments(), since=st.none() | moments(), patience=st.integers(1, 600))
def test_the_wait_ends_at_its_patience_after_the_earlier_of_both_clocks(
    ended_at: datetime, since: datetime | None, patience: int
) -> None:
    workload = WorkloadState("digits-0", phase=WorkloadPhase.SUCCEEDED, ended_at=ended_at)
    until = agent_report_deadline(SILENT, workload, patience, waiting_since=since)
    assert until is not None
    begins: Iterator[datetime] = (moment for moment in (ended_at, since) if moment is not None)
    assert until - timedelta(seconds=patience) == min(begins)


@given(st.lists(moments(), max_size=4), moments())
def test_of_conditions_ahead_of_the_clock_the_time_alone_is_another(changes: list[datetime], now: datetime) -> None:
    before = tuple(
        Condition(type=f"Type{index}", status=ConditionStatus.TRUE, reason="Because", last_transition_time=changed)
        for index, changed in enumerate(changes)
    )
    after = not_in_future(before, now)
    assert [each.last_transition_time for each in after] == [min(changed, now) for changed in changes]
    assert [each.type for each in after] == [each.type for each in before]
    assert not_in_future(after, now) == after
