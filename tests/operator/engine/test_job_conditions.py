"""What a job's conditions say of the target and of what was learned from another job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from model_world import KEY, START, ModelWorld

from wattloop_operator.api.conditions import Condition
from wattloop_operator.engine.actions import WriteJobStatus
from wattloop_operator.engine.decide import question
from wattloop_operator.engine.snapshot import Snapshot
from wattloop_operator.engine.turn import next_turn
from wattloop_operator.store.records import ObservationRecord

Settle = Callable[[ModelWorld], None]


def ran(world: ModelWorld, settled: Settle, metric: float) -> None:
    settled(world)
    name = world.running[0]
    world.run_workload(name)
    world.report(name, epoch=50, metric=metric, finished=True)
    world.end_workload(name)
    settled(world)
    world.pass_seconds(3600)


def of_kind(world: ModelWorld, kind: str) -> Condition | None:
    return next((each for each in world.job.status.conditions if each.type == kind), None)


def test_a_target_that_nothing_reached_says_what_was_tried_and_the_way_out(
    world_with: Callable[..., ModelWorld], settled: Settle
) -> None:
    world = world_with(retryPolicy={"limit": 0}, policy={"fixed": {}})
    settled(world)
    assert of_kind(world, "TargetReachable") is None
    ran(world, settled, metric=0.5)
    ran(world, settled, metric=0.6)
    never = of_kind(world, "TargetReachable")
    assert never is not None
    assert (never.status, never.reason) == ("False", "NeverReached")
    assert "none of 2 attempts (batch sizes 64) reached accuracy 0.9 within 50 epochs" in never.message
    assert "lower objective.target.threshold" in never.message
    ran(world, settled, metric=0.95)
    now = of_kind(world, "TargetReachable")
    assert now is not None
    assert now.status == "True"
    assert of_kind(world, "Learns") is None


def status_with(world: ModelWorld, learned: tuple[ObservationRecord, ...]) -> Condition:
    snapshot = world.snapshot(KEY)
    assert snapshot is not None
    turn = next_turn(replace(snapshot, learned=learned), START)
    write = next(action for action in turn.actions if isinstance(action, WriteJobStatus))
    return next(each for each in write.status.conditions if each.type == "Transferred")


def test_what_was_taken_over_from_another_job_is_said(world_with: Callable[..., ModelWorld], settled: Settle) -> None:
    teacher = world_with(retryPolicy={"limit": 0})
    ran(teacher, settled, metric=0.95)
    learned = tuple(teacher.records.values())
    world = world_with(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "teacher"})
    said = status_with(world, learned)
    assert (said.status, said.reason) == ("True", "LearnedFrom")
    assert "1 attempts of teacher (batch sizes 64)" in said.message
    nothing = status_with(world, ())
    assert (nothing.status, nothing.reason) == ("False", "NothingKnown")


def test_the_policy_sees_another_job_s_runs_as_another_job_s(
    world_with: Callable[..., ModelWorld], settled: Settle
) -> None:
    teacher = world_with(retryPolicy={"limit": 0})
    ran(teacher, settled, metric=0.95)
    snapshot = world_with(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "teacher"}).snapshot(KEY)
    assert isinstance(snapshot, Snapshot)
    asked = question(replace(snapshot, learned=tuple(teacher.records.values())), 0, 0)
    assert [each.from_other_job for each in asked.observations] == [True]
