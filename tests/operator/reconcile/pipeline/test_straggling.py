"""Stragglers: noticed from iteration times or announced, and over with hysteresis."""

from dataclasses import replace

import pytest

from support.pipelines.simulated_ranks import SimulatedOperator, SimulatedRank, exchange, ranks_of, run_until_planned
from wattloop.pipeline.plan_messages import PLAN, StragglerNotice
from wattloop_operator.reconcile.pipeline.rank_directives import decided
from wattloop_operator.reconcile.pipeline.straggling import with_notice


def running(data_parallel: int = 3) -> tuple[SimulatedOperator, list[SimulatedRank], float]:
    """A pipeline under its plan, and the planned time of an iteration."""
    operator, ranks = SimulatedOperator(), ranks_of(2 * data_parallel, data_parallel=data_parallel)
    for rank in ranks:
        rank.receive(operator.register(rank))
    run_until_planned(operator, ranks)
    directive, frontier = operator.state.directive, operator.state.frontier
    assert directive.mode == PLAN
    assert directive.point is not None
    planned = frontier.points[directive.point].time_seconds
    for rank in ranks:
        rank.iteration_seconds = planned
    return operator, ranks, planned


def exchange_at(operator: SimulatedOperator, ranks: list[SimulatedRank], times: dict[int, float], rounds: int) -> None:
    for _ in range(rounds):
        for data_rank, seconds in times.items():
            for rank in ranks:
                if rank.registration.data_rank == data_rank:
                    # The mean over all iterations under the directive, so that the latest ones take this long.
                    under = rank.iterations - rank.started[rank.running.number]
                    rank.iteration_seconds = (rank.iteration_seconds * under + seconds * 5) / (under + 5)
        exchange(operator, ranks)


def planned_time(operator: SimulatedOperator, rank: SimulatedRank) -> float:
    """Time of the point that a rank runs."""
    frontier, directive = operator.state.frontier, operator.state.directive
    is_beside = directive.straggler_point is not None and rank.registration.data_rank not in directive.stragglers
    return frontier.points[(directive.straggler_point if is_beside else directive.point) or 0].time_seconds


def test_the_pipelines_beside_a_straggler_run_the_slowest_plan_that_ends_before_it() -> None:
    operator, ranks, planned = running()
    number = operator.state.directive.number
    exchange_at(operator, ranks, {0: planned, 1: planned * 1.2, 2: planned}, 3)
    assert operator.state.directive.number == number + 1
    for rank in ranks[2:4]:
        rank.iteration_seconds = planned * 1.2
    for _ in range(3):
        exchange(operator, ranks)
        run_until_planned(operator, ranks)
    frontier, directive = operator.state.frontier, operator.state.directive
    assert directive.straggler_point is not None
    beside = frontier.points[directive.straggler_point].time_seconds
    assert planned < beside <= planned * 1.2 * 1.001
    assert not [each for each in frontier.points if beside < each.time_seconds <= planned * 1.19]
    assert directive.stragglers == (1,)
    clocks = {rank.registration.data_rank: rank.running.clocks_megahertz for rank in ranks[::2]}
    assert clocks[0] == clocks[2] == frontier.points[directive.straggler_point].clocks_megahertz[0]
    assert clocks[1] == frontier.points[directive.point or 0].clocks_megahertz[0]


@pytest.mark.parametrize("excess", [1.0, 1.03])
def test_differences_within_noise_are_no_straggler(excess: float) -> None:
    operator, ranks, planned = running()
    number = operator.state.directive.number
    exchange_at(operator, ranks, {0: planned, 1: planned * excess, 2: planned}, 8)
    assert operator.state.directive.number == number


def test_a_pipeline_that_is_slow_for_one_report_is_no_straggler() -> None:
    operator, ranks, planned = running()
    number = operator.state.directive.number
    exchange_at(operator, ranks, {0: planned, 1: planned * 1.3, 2: planned}, 1)
    exchange_at(operator, ranks, {0: planned, 1: planned, 2: planned}, 4)
    assert operator.state.directive.number == number
    assert operator.state.straggler is None


def test_the_plan_comes_back_once_the_straggler_is_over() -> None:
    operator, ranks, planned = running()
    exchange_at(operator, ranks, {0: planned, 1: planned * 1.2, 2: planned}, 3)
    run_until_planned(operator, ranks)
    for rank in ranks:
        rank.iteration_seconds = planned if rank.registration.data_rank == 1 else planned_time(operator, rank)
    number = operator.state.directive.number
    exchange(operator, ranks)
    exchange(operator, ranks)
    assert operator.state.straggler is None
    run_until_planned(operator, ranks)
    assert operator.state.directive.number == number + 1
    assert operator.state.directive.straggler_point is None


def test_an_announced_straggler_slows_the_plan_until_its_end_is_announced() -> None:
    operator, ranks, planned = running(data_parallel=1)
    point = operator.state.directive.point
    notice = StragglerNotice(planned * 1.25, "GPU 3 is throttled")
    operator.state = decided(with_notice(operator.state, notice, operator.now), operator.now)
    run_until_planned(operator, ranks)
    assert planned < planned_time(operator, ranks[0]) <= planned * 1.25
    assert "because a straggler takes" in ranks[0].directive.reason
    operator.state = decided(with_notice(operator.state, StragglerNotice(None), operator.now), operator.now)
    run_until_planned(operator, ranks)
    assert (operator.state.directive.point, operator.state.directive.straggler_point) == (point, None)


def test_an_announced_straggler_that_is_faster_than_the_plan_changes_nothing() -> None:
    operator, _, planned = running(data_parallel=1)
    number = operator.state.directive.number
    notice = StragglerNotice(planned * 0.9, "faster")
    assert decided(with_notice(operator.state, notice, operator.now), operator.now).directive.number == number


def test_the_slow_pipeline_of_an_announced_straggler_keeps_its_plan() -> None:
    operator, ranks, planned = running()
    exchange_at(operator, ranks, {0: planned, 1: planned * 1.2, 2: planned}, 1)
    state = with_notice(replace(operator.state, straggler=None), StragglerNotice(planned * 1.2), operator.now)
    assert decided(state, operator.now).directive.stragglers == (1,)


def test_a_straggler_beside_a_plan_without_a_time_is_answered() -> None:
    operator, ranks, planned = running()
    frontier = operator.state.frontier
    untimed = tuple(replace(point, time_seconds=0.0) for point in frontier.points)
    operator.state = replace(operator.state, frontier=replace(frontier, points=untimed))
    run_until_planned(operator, ranks)
    exchange_at(operator, ranks, {0: planned, 1: planned * 1.2, 2: planned}, 3)
    assert all(rank.directive.known for rank in ranks)
