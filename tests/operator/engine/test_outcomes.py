"""How attempts end, what the condition says, and what the policy learns of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from model_world import ModelWorld

from wattloop_operator.api.result import Result
from wattloop_operator.engine import memory
from wattloop_operator.engine.snapshot import Failure
from wattloop_planner.observations import Observation, Outcome

Settle = Callable[[ModelWorld], None]
NEVER_RETRY: dict[str, Any] = {"retryPolicy": {"limit": 0}, "activeDeadlineSeconds": 600}


def started(world: ModelWorld, settled: Settle) -> str:
    """Starts the first attempt and returns its name."""
    settled(world)
    name = world.running[0]
    world.run_workload(name)
    settled(world)
    return name


def learned(world: ModelWorld) -> tuple[Observation, ...]:
    return memory.observations(tuple(world.records.values()))


def dies(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=1, metric=0.4)
    world.end_workload(name, Failure.CRASHED, "exit code 1")


def dies_before_a_report(world: ModelWorld, name: str) -> None:
    world.end_workload(name, Failure.CRASHED, "out of memory")


def is_evicted(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=3, metric=0.4)
    world.end_workload(name, Failure.DISRUPTED, "evicted")


def hangs_past_its_deadline(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=7, metric=0.4)
    world.pass_seconds(601)


def hangs_without_a_word(world: ModelWorld, name: str) -> None:
    world.pass_seconds(601)


def reports_nothing(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=50, finished=True)
    world.end_workload(name)


def never_reaches_the_target(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=50, metric=0.89, finished=True)
    world.end_workload(name)


def reaches_the_target(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=5, metric=0.9, finished=True)
    world.end_workload(name)


def reaches_the_target_and_dies(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=5, metric=0.93)
    world.end_workload(name, Failure.CRASHED, "exit code 1")


def is_done_but_does_not_end(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=5, metric=0.93, finished=True)


def is_deleted_by_hand(world: ModelWorld, name: str) -> None:
    world.report(name, sequence=1, epoch=2, metric=0.4)
    del world.workloads[name]


@pytest.mark.parametrize(
    ("happens", "result", "message", "outcome", "epochs"),
    [
        (dies, Result.CRASHED, "batch size 64: exit code 1", Outcome.CRASHED, 1),
        (dies_before_a_report, Result.CRASHED, "out of memory", Outcome.CRASHED, 0),
        (is_evicted, Result.DISRUPTED, "nothing is learned", None, None),
        (hangs_past_its_deadline, Result.DEADLINE_EXCEEDED, "its last report was of epoch 7", Outcome.STOPPED, 7),
        (hangs_without_a_word, Result.DEADLINE_EXCEEDED, "it never reported a metric", None, None),
        (reports_nothing, Result.MISSING_METRIC, "call run.report", None, None),
        (never_reaches_the_target, Result.EXHAUSTED, "got to 0.89, the target is 0.9", Outcome.EXHAUSTED, 50),
        (reaches_the_target, Result.REACHED, "accuracy reached 0.9 after 5 epochs", Outcome.REACHED, 5),
        (reaches_the_target_and_dies, Result.REACHED, "accuracy reached 0.93", Outcome.REACHED, 5),
        (is_deleted_by_hand, Result.CANCELLED, "its workload was deleted", None, None),
    ],
)
def test_each_end_has_its_result_its_reason_and_its_lesson(
    world_with: Callable[..., ModelWorld],
    settled: Settle,
    happens: Callable[[ModelWorld, str], None],
    result: Result,
    message: str,
    outcome: Outcome | None,
    epochs: float | None,
) -> None:
    world = world_with(**NEVER_RETRY)
    name = started(world, settled)
    happens(world, name)
    settled(world)
    status = world.recurrences[name].status
    assert status.result is result
    assert message in status.message
    complete = next(each for each in status.conditions if each.type == "Complete")
    assert (complete.status, complete.reason) == ("True", result.value)
    assert [(each.outcome, each.epochs) for each in learned(world)] == ([] if outcome is None else [(outcome, epochs)])
    last_run = next(each for each in world.job.status.conditions if each.type == "LastRunSucceeded")
    assert (last_run.status, last_run.reason) == ("True" if result is Result.REACHED else "False", result.value)


def test_a_process_that_is_done_but_does_not_end_is_ended_after_its_grace(world: ModelWorld, settled: Settle) -> None:
    name = started(world, settled)
    is_done_but_does_not_end(world, name)
    settled(world)
    world.pass_seconds(59)
    settled(world)
    assert world.recurrences[name].status.result is None
    world.pass_seconds(2)
    settled(world)
    assert world.recurrences[name].status.result is Result.REACHED
    assert name not in world.workloads


def test_a_run_that_becomes_too_dear_is_told_to_stop_and_teaches_a_bound(
    world_with: Callable[..., ModelWorld], settled: Settle
) -> None:
    world = world_with(**NEVER_RETRY, policy={"zeus": {}})
    first = started(world, settled)
    reaches_the_target(world, first)
    settled(world)
    world.pass_seconds(3600)
    second = started(world, settled)
    bound = world.recurrences[second].spec.stop_cost_joules
    assert bound is not None
    world.report(second, sequence=1, epoch=9, metric=0.5, joules=2 * float(bound), seconds=1.0)
    progress = world.recurrences[second].status.progress
    assert progress is not None
    assert progress.stop_requested
    world.end_workload(second)
    settled(world)
    assert world.recurrences[second].status.result is Result.STOPPED
    assert learned(world)[-1].outcome is Outcome.STOPPED


def test_a_target_reached_just_above_the_bound_counts_as_reached(
    world_with: Callable[..., ModelWorld], settled: Settle
) -> None:
    world = world_with(**NEVER_RETRY, policy={"zeus": {}})
    first = started(world, settled)
    reaches_the_target(world, first)
    settled(world)
    world.pass_seconds(3600)
    second = started(world, settled)
    bound = world.recurrences[second].spec.stop_cost_joules
    assert bound is not None
    world.report(second, sequence=1, epoch=9, metric=0.95, joules=3 * float(bound), seconds=1.0, finished=True)
    world.end_workload(second)
    settled(world)
    assert world.recurrences[second].status.result is Result.REACHED


def test_an_arm_that_crashes_again_and_again_is_tried_no_more(
    world_with: Callable[..., ModelWorld], settled: Settle
) -> None:
    world = world_with(crashBudget=2, retryPolicy={"limit": 20}, batchSize={"default": 64, "candidates": [32, 64]})
    settled(world)
    crashes: list[int] = []
    while world.running:
        name = world.running[0]
        crashes.append(world.recurrences[name].spec.batch_size)
        world.run_workload(name)
        dies_before_a_report(world, name)
        settled(world)
    assert sorted(crashes) == [32, 32, 64, 64]
    ready = next(each for each in world.job.status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "NoArmLeft")
    assert "every batch size crashed" in ready.message
    assert [each.reason for each in world.announced] == ["NoArmLeft"]


def test_a_retry_belongs_to_the_same_recurrence_and_its_cost_adds_up(world: ModelWorld, settled: Settle) -> None:
    first = started(world, settled)
    never_reaches_the_target(world, first)
    settled(world)
    second = world.running[0]
    spec = world.recurrences[second].spec
    assert (spec.index, spec.attempt, spec.slot) == (0, 1, world.recurrences[first].spec.slot)
    world.run_workload(second)
    reaches_the_target(world, second)
    settled(world)
    recent = world.job.status.recent_recurrences[0]
    assert (recent.index, recent.attempts, recent.result) == (0, 2, Result.REACHED)
    # Two attempts of 1000 J and 10 s on a GPU of 400 W at most, energy and time weighing the same.
    assert recent.cost_joules == 2 * (0.5 * 1000 + 0.5 * 400 * 10)
    assert world.job.status.counts.recurrences == 1


def test_a_missing_metric_is_not_tried_again(world: ModelWorld, settled: Settle) -> None:
    name = started(world, settled)
    reports_nothing(world, name)
    settled(world)
    assert world.running == []
