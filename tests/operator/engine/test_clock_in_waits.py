"""What an attempt waits for: no longer than the patience for it, whatever the operator's clock says beside others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_world import KEY, START, ModelWorld, job

from wattloop_operator.api.conditions import Condition, ConditionStatus
from wattloop_operator.engine.agents_word import AgentsWord, awaited_until
from wattloop_operator.engine.attempts import ENERGY_AWAITED
from wattloop_operator.engine.conditions import changed_at, none_ahead
from wattloop_operator.engine.outcome import GRACE_SECONDS
from wattloop_operator.engine.snapshot import WorkloadPhase, WorkloadState
from wattloop_operator.engine.turn import next_turn

Settle = Callable[[ModelWorld], None]
PATIENCE = 10
DAY = 86_400
SILENT = AgentsWord((), 1)
# How far the clock of the API server and the kubelets is ahead of the operator's.
AHEAD = {"as the operator's": 0, "a day ahead": DAY, "a day behind": -DAY}


@pytest.fixture
def world() -> ModelWorld:
    """A job on one GPU whose agent is silent."""
    return ModelWorld(job(power={"limit": {"mode": "None"}}), devices=1, agent_patience_seconds=PATIENCE)


@pytest.fixture
def name(world: ModelWorld, settled: Settle) -> str:
    """Its first attempt, which runs."""
    settled(world)
    name = world.running[0]
    world.run_workload(name)
    settled(world)
    world.pass_seconds(20)
    return name


def ends(world: ModelWorld, name: str, ahead_seconds: float = 0) -> None:
    """The attempt reaches its target, and its end is written down by a clock that is so far ahead."""
    world.report(name, sequence=1, epoch=5, metric=0.95, finished=True)
    world.end_workload(name)
    ended_at = world.now + timedelta(seconds=ahead_seconds)
    world.workloads[name] = replace(world.workloads[name], ended_at=ended_at)


def waits(world: ModelWorld, name: str) -> bool:
    return world.recurrences[name].status.result is None


def next_look(world: ModelWorld) -> datetime | None:
    snapshot = world.snapshot(KEY)
    assert snapshot is not None
    turn = next_turn(snapshot, world.now)
    assert not turn.actions, "it had settled"
    return turn.wake_at


@pytest.mark.parametrize("ahead_seconds", AHEAD.values(), ids=AHEAD.keys())
def test_the_last_word_is_waited_for_no_longer_than_the_patience(
    ahead_seconds: float, world: ModelWorld, name: str, settled: Settle
) -> None:
    ends(world, name, ahead_seconds)
    settled(world)
    if ahead_seconds >= 0:
        assert waits(world, name)
        assert next_look(world) == world.now + timedelta(seconds=PATIENCE)
        world.pass_seconds(PATIENCE - 1)
        settled(world)
        assert waits(world, name)
        world.pass_seconds(1)
        settled(world)
    assert not waits(world, name)


@pytest.mark.parametrize("set_seconds", [-DAY, -3, 3, DAY])
def test_a_clock_that_is_set_in_the_midst_of_the_wait_makes_it_no_longer_than_the_patience_from_then(
    set_seconds: float, world: ModelWorld, name: str, settled: Settle
) -> None:
    ends(world, name)
    settled(world)
    world.pass_seconds(5)
    world.pass_seconds(set_seconds)
    settled(world)
    world.pass_seconds(PATIENCE)
    settled(world)
    assert not waits(world, name)


def test_an_attempt_that_was_not_seen_to_run_waits_from_its_end_not_from_when_it_was_started(
    world: ModelWorld, settled: Settle
) -> None:
    settled(world)
    name = world.running[0]
    world.pass_seconds(600)
    ends(world, name)
    settled(world)
    assert waits(world, name)
    assert next_look(world) == world.now + timedelta(seconds=PATIENCE)


def test_the_condition_that_it_waits_goes_with_the_wait(world: ModelWorld, name: str, settled: Settle) -> None:
    ends(world, name, DAY)
    settled(world)
    assert changed_at(world.recurrences[name].status.conditions, ENERGY_AWAITED) == world.now
    world.pass_seconds(PATIENCE)
    settled(world)
    assert ENERGY_AWAITED not in {each.type for each in world.recurrences[name].status.conditions}


@pytest.mark.parametrize("started_ahead_seconds", AHEAD.values(), ids=AHEAD.keys())
@pytest.mark.parametrize("set_seconds", [0, -DAY, DAY])
def test_a_process_that_is_done_has_its_grace_and_no_more(
    set_seconds: float, started_ahead_seconds: float, world: ModelWorld, name: str, settled: Settle
) -> None:
    started_at = START + timedelta(seconds=started_ahead_seconds)
    world.workloads[name] = replace(world.workloads[name], started_at=started_at)
    world.report(name, sequence=1, epoch=5, metric=0.95, finished=True)
    settled(world)
    world.pass_seconds(GRACE_SECONDS - 1)
    settled(world)
    assert waits(world, name)
    world.pass_seconds(set_seconds)
    settled(world)
    world.pass_seconds(GRACE_SECONDS)
    settled(world)
    assert not waits(world, name)
    assert name not in world.workloads


def moments() -> st.SearchStrategy[datetime]:
    return st.integers(-2 * DAY, 2 * DAY).map(lambda seconds: START + timedelta(seconds=seconds))


@given(ended_at=moments(), since=st.none() | moments(), patience=st.integers(1, 600))
def test_the_wait_ends_at_its_patience_after_the_earlier_of_both_clocks(
    ended_at: datetime, since: datetime | None, patience: int
) -> None:
    workload = WorkloadState("digits-0", phase=WorkloadPhase.SUCCEEDED, ended_at=ended_at)
    until = awaited_until(SILENT, workload, patience, awaited_since=since)
    assert until is not None
    begins: Iterator[datetime] = (moment for moment in (ended_at, since) if moment is not None)
    assert until - timedelta(seconds=patience) == min(begins)


@given(st.lists(moments(), max_size=4), moments())
def test_of_conditions_ahead_of_the_clock_the_time_alone_is_another(changes: list[datetime], now: datetime) -> None:
    before = tuple(
        Condition(type=f"Type{index}", status=ConditionStatus.TRUE, reason="Because", last_transition_time=changed)
        for index, changed in enumerate(changes)
    )
    after = none_ahead(before, now)
    assert [each.last_transition_time for each in after] == [min(changed, now) for changed in changes]
    assert [each.type for each in after] == [each.type for each in before]
    assert none_ahead(after, now) == after
