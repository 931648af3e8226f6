"""When recurrences start: concurrency, suspension, deadlines, requests, limits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from model_world import KEY, START, ModelWorld

from wattloop_operator.api.result import Result
from wattloop_operator.engine.turn import next_turn

Settle = Callable[[ModelWorld], None]
Worlds = Callable[..., ModelWorld]


def reason(world: ModelWorld) -> str:
    return next(each.reason for each in world.job.status.conditions if each.type == "Ready")


def test_forbid_lets_a_due_run_wait_for_the_one_that_is_going_on(world: ModelWorld, settled: Settle) -> None:
    settled(world)
    first = world.running[0]
    world.run_workload(first)
    world.pass_seconds(3 * 3600)
    settled(world)
    assert world.running == [first]
    world.report(first, metric=0.95, finished=True)
    world.end_workload(first)
    settled(world)
    second = world.recurrences[world.running[0]]
    assert (second.spec.index, (second.spec.scheduled_time - START).total_seconds()) == (1, 3 * 3600)
    assert world.job.status.counts.missed == 2
    assert [each.reason for each in world.announced] == ["MissedStarts"]


def test_allow_starts_beside_and_tells_the_policy_what_runs(world_with: Worlds, settled: Settle) -> None:
    world = world_with(concurrencyPolicy="Allow")
    settled(world)
    world.pass_seconds(3600)
    settled(world)
    assert [world.recurrences[name].spec.index for name in world.running] == [0, 1]


def test_replace_ends_the_older_run_first(world_with: Worlds, settled: Settle) -> None:
    world = world_with(concurrencyPolicy="Replace")
    settled(world)
    first = world.running[0]
    world.run_workload(first)
    world.pass_seconds(3600)
    settled(world)
    assert world.recurrences[first].status.result is Result.CANCELLED
    assert first not in world.workloads
    assert [world.recurrences[name].spec.index for name in world.running] == [1]


def test_a_suspended_job_leaves_what_runs_alone_and_resumes_with_one_run(world: ModelWorld, settled: Settle) -> None:
    settled(world)
    first = world.running[0]
    world.change_spec(suspend=True)
    world.run_workload(first)
    world.report(first, metric=0.95, finished=True)
    world.end_workload(first)
    world.pass_seconds(1000 * 3600)
    settled(world)
    assert world.running == []
    assert reason(world) == "Suspended"
    world.change_spec(suspend=False)
    settled(world)
    assert len(world.running) == 1
    assert len(world.recurrences) == 2


def test_a_start_later_than_its_deadline_is_missed_once(world_with: Worlds, settled: Settle) -> None:
    world = world_with(startingDeadlineSeconds=60)
    world.pass_seconds(61)
    settled(world)
    assert world.running == []
    assert world.job.status.last_missed_time == START
    assert world.job.status.counts.missed == 1
    settled(world)
    assert world.job.status.counts.missed == 1
    assert [each.reason for each in world.announced] == ["MissedStart"]
    assert world.job.status.last_schedule_time is None


def test_missed_run_policy_skip_waits_for_the_next_time(world_with: Worlds, settled: Settle) -> None:
    world = world_with(missedRunPolicy="Skip")
    world.pass_seconds(2 * 3600 + 1800)
    settled(world)
    assert world.running == []
    world.pass_seconds(1801)
    settled(world)
    assert len(world.running) == 1


def test_a_run_request_is_one_run_however_often_it_is_seen(world_with: Worlds, settled: Settle) -> None:
    world = world_with(trigger={"manual": {}}, runRequest="2026-03-01")
    settled(world)
    name = world.running[0]
    world.run_workload(name)
    world.report(name, metric=0.95, finished=True)
    world.end_workload(name)
    settled(world)
    world.delete_by_hand(name)
    settled(world)
    assert world.running == []
    world.change_spec(runRequest="2026-03-02")
    settled(world)
    assert len(world.running) == 1


def test_a_finished_recurrence_deleted_by_hand_is_not_run_again(world: ModelWorld, settled: Settle) -> None:
    settled(world)
    name = world.running[0]
    world.run_workload(name)
    world.report(name, metric=0.95, finished=True)
    world.end_workload(name)
    settled(world)
    world.delete_by_hand(name)
    world.lose_database()
    settled(world)
    assert world.running == []


def test_no_more_than_the_recurrences_asked_for_are_started(world_with: Worlds, settled: Settle) -> None:
    world = world_with(trigger={"continuous": {}}, maxRecurrences=3)
    for _ in range(5):
        settled(world)
        for name in world.running:
            world.run_workload(name)
            world.report(name, metric=0.95, finished=True)
            world.end_workload(name)
        world.pass_seconds(1)
    settled(world)
    assert len(world.records) == 3
    assert reason(world) == "AllStarted"


@pytest.mark.parametrize(
    ("changes", "refusal", "expected"),
    [
        ({"trigger": {"cron": {"schedule": "0 0 31 2 *"}}}, "", "InvalidSchedule"),
        ({}, "Job is invalid: spec.template.spec.containers[0].image: Required value", "TemplateRefused"),
        ({"suspend": True}, "", "Suspended"),
        ({"reporting": {"source": "Logs"}}, "", "NotSupported"),
        ({"power": {"frequencyPlanRef": {"name": "plan"}}}, "", "NotSupported"),
        ({"parameters": [{"name": "dropout", "default": "0.1", "candidates": ["0.1", "0.2"]}]}, "", "NotSupported"),
    ],
)
def test_a_job_that_cannot_start_says_why(
    world_with: Worlds, settled: Settle, changes: dict[str, object], refusal: str, expected: str
) -> None:
    world = world_with(**changes)
    world.refusal = refusal
    settled(world)
    assert world.recurrences == {}
    assert reason(world) == expected


def test_the_next_start_is_when_to_look_again(world: ModelWorld, settled: Settle) -> None:
    settled(world)
    snapshot = world.snapshot(KEY)
    assert snapshot is not None
    turn = next_turn(snapshot, world.now)
    assert turn.actions == ()
    assert turn.wake_at == snapshot.job.status.next_schedule_time
