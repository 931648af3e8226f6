"""The cycles of a plan's comparison have the length that the measured time of an iteration asks for, on all ranks."""

from dataclasses import replace

import pytest

from support.pipelines.simulated_ranks import (
    NEW_STATE,
    SimulatedOperator,
    SimulatedRank,
    exchange,
    ranks_of,
    run_until_planned,
)
from wattloop.pipeline.plan_messages import FREE, PLAN
from wattloop_operator.reconcile.pipeline.measured_excess import free_iterations
from wattloop_operator.reconcile.pipeline.pipeline_state import JobPlan, PipelineKey


def planned(seconds: float) -> tuple[SimulatedOperator, list[SimulatedRank]]:
    """A pipeline whose iterations take so long, under the plan that it has just begun."""
    operator, ranks = SimulatedOperator(), timed(ranks_of(2), seconds)
    run_until_planned(operator, ranks)
    assert operator.state.directive.mode == PLAN
    return operator, ranks


def timed(ranks: list[SimulatedRank], seconds: float) -> list[SimulatedRank]:
    """The ranks with iterations that take so long, under a plan and at free clocks."""
    for rank in ranks:
        rank.iteration_seconds = rank.free_seconds = seconds
        rank.iterations_per_second = 1 / seconds
    return ranks


def with_stored_plan(seconds: float) -> tuple[SimulatedOperator, list[SimulatedRank]]:
    """The next recurrence, whose plan is known before its first iteration; its ranks have registered."""
    state = planned(1.0)[0].state
    key = PipelineKey(NEW_STATE.key.job_uid, NEW_STATE.key.recurrence + 1, 0)
    later = SimulatedOperator(replace(NEW_STATE, key=key, profile=state.profile, frontier=state.frontier))
    ranks = timed(ranks_of(2, run=1), seconds)
    for rank in ranks:
        rank.receive(later.register(rank))
    return later, ranks


def test_a_stored_plan_waits_until_an_iteration_is_timed() -> None:
    """It began at once, with the cycles of iterations of 0.2 s, whatever they took."""
    operator, ranks = with_stored_plan(20.0)
    assert operator.state.directive.mode == FREE
    assert operator.state.directive.reason == "the first iterations are timed"
    for rank in ranks:
        rank.receive(operator.receive(rank, rank.report()))
    assert operator.state.directive.mode == FREE
    exchange(operator, ranks)
    assert operator.state.directive.mode == PLAN


def test_ranks_report_every_second_while_the_first_iterations_are_timed() -> None:
    _, ranks = with_stored_plan(1.0)
    # The first one waited for the other's registration.
    assert [rank.directive.report_seconds for rank in ranks] == [5.0, 1.0]
    idle = SimulatedOperator(replace(NEW_STATE, job_plan=JobPlan(enabled=False)))
    assert [idle.register(rank).report_seconds for rank in ranks_of(2, run=2)] == [5.0, 5.0]


@pytest.mark.parametrize("seconds", [0.004, 0.05, 0.2, 1.0, 20.0])
def test_a_stored_plan_has_the_cycles_of_the_measured_time_of_an_iteration(seconds: float) -> None:
    operator, ranks = with_stored_plan(seconds)
    run_until_planned(operator, ranks)
    assert operator.state.directive.free == free_iterations(seconds)
    assert {rank.running.free for rank in ranks} == {free_iterations(seconds)}


@pytest.mark.parametrize(("before", "after"), [(1.0, 0.1), (0.1, 0.02), (0.1, 1.0), (0.02, 0.3)])
def test_cycles_are_agreed_again_once_iterations_take_another_time_than_before_the_plan(
    before: float, after: float
) -> None:
    operator, ranks = SimulatedOperator(), timed(ranks_of(2), before)
    while operator.state.directive.mode != PLAN:
        exchange(operator, ranks)
    number = operator.state.directive.number
    assert operator.state.directive.free == free_iterations(before)
    timed(ranks, after)
    while operator.state.directive.number == number:
        exchange(operator, ranks)
    assert operator.state.directive.mode == PLAN
    run_until_planned(operator, ranks)
    assert {rank.running.free for rank in ranks} == {free_iterations(after)}
    assert len({rank.started[number + 1] for rank in ranks}) == 1
    for _ in range(20):
        exchange(operator, ranks)
    assert operator.state.directive.number == number + 1


@pytest.mark.parametrize(("before", "after"), [(0.2, 0.28), (0.2, 0.14), (2.0, 30.0), (30.0, 2.0), (0.001, 0.0002)])
def test_cycles_stay_as_long_as_their_blocks_are_about_as_long_as_they_ought_to_be(before: float, after: float) -> None:
    operator, ranks = planned(before)
    number = operator.state.directive.number
    timed(ranks, after)
    for _ in range(10):
        exchange(operator, ranks)
    assert operator.state.directive.number == number


def test_one_long_iteration_changes_no_cycles() -> None:
    operator, ranks = planned(0.2)
    number = operator.state.directive.number
    timed(ranks, 5.0)
    for rank in ranks:
        operator.receive(rank, replace(rank.report(), measured_iterations=2))
    assert operator.state.directive.number == number


def test_a_plan_goes_on_with_the_times_of_the_others_when_a_process_of_a_rank_is_replaced() -> None:
    operator, ranks = planned(0.05)
    (again, _) = timed(ranks_of(2, run=1), 0.05)
    again.receive(operator.register(again))
    assert operator.state.directive.mode == PLAN
    assert operator.state.directive.free == free_iterations(0.05)
    ranks = [again, ranks[1]]
    run_until_planned(operator, ranks)
    assert len({rank.started[rank.running.number] for rank in ranks}) == 1
