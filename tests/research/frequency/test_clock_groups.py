"""Groups of operations with one clock: long enough, in time, of minimum energy, and used only where better."""

from itertools import accumulate, groupby, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.measured_pipelines import measured_problem
from support.pipelines.plan_rows import clocks
from wattloop_planner.frequency import (
    SCHEDULES,
    Option,
    Problem,
    Profile,
    evaluate,
    pipeline_problem,
    plan_frequencies,
    plan_pipeline,
    schedule_graph,
)
from wattloop_research.frequency.clock_groups import best_grouping, grouped
from wattloop_research.frequency.emulation import Conditions, emulate

WAITING_WATTS = 20.0
FORWARD = (Option(1400, 1.0, 300.0), Option(1100, 1.2, 250.0), Option(800, 1.7, 230.0))
BACKWARD = (Option(1400, 2.1, 640.0), Option(1100, 2.4, 560.0), Option(800, 3.2, 500.0))


def one_stage(microbatches: int) -> Problem:
    profile = Profile("one stage", {(0, "forward"): FORWARD, (0, "backward"): BACKWARD})
    return pipeline_problem(schedule_graph(SCHEDULES["gpipe"](1, microbatches)), profile, WAITING_WATTS)


def groups(row: list[int]) -> list[list[int]]:
    """Positions of the operations, by run of one clock."""
    return [[place for place, _ in found] for _, found in groupby(enumerate(row), key=lambda entry: entry[1])]


@given(plan=st.lists(st.sampled_from([1400, 1100, 800]), min_size=6, max_size=6), seconds=st.floats(0.5, 8.0))
def test_the_groups_are_those_of_minimum_energy_among_all_divisions_without_long_groups(
    plan: list[int], seconds: float
) -> None:
    problem = one_stage(3)
    measured = [problem.measured[kind] for kind in problem.graph.kind_of[problem.graph.order[0]].tolist()]
    planned = [options[clock].time_seconds for options, clock in zip(measured, plan, strict=True)]

    passed = [0.0, *accumulate(planned)]

    def effective(row: list[int]) -> float:
        return sum(
            options[clock].energy_joules - WAITING_WATTS * options[clock].time_seconds
            for options, clock in zip(measured, row, strict=True)
        )

    possible: list[float] = []
    for ends in product([False, True], repeat=5):
        bounds = [0, *(place + 1 for place, ends_here in enumerate(ends) if ends_here), 6]
        parts = [range(low, high) for low, high in pairwise(bounds)]
        # From the begin of the stage, as the planner adds them: sums of the parts differ by a rounding step.
        lasting = [
            (passed[part.stop] - passed[part.start], passed[part.stop] - passed[part.start + 1]) for part in parts
        ]
        if any(group < seconds or without_first >= 2 * seconds for group, without_first in lasting):
            continue
        for chosen in product([1400, 1100, 800], repeat=len(parts)):
            times = [
                sum(measured[i][clock].time_seconds for i in part) for part, clock in zip(parts, chosen, strict=True)
            ]
            allowed = [sum(planned[i] for i in part) for part in parts]
            if all(time <= limit + 1e-9 for time, limit in zip(times, allowed, strict=True)):
                row = [clock for part, clock in zip(parts, chosen, strict=True) for _ in part]
                possible.append(effective(row))
    found = clocks(grouped(problem, [plan], seconds))[0]
    if not possible:
        assert found == plan
    else:
        assert effective(found) == pytest.approx(min(possible))


def test_a_group_lasts_at_least_the_minimum_by_the_planned_times() -> None:
    problem = measured_problem("bert", 32)
    plan = [row.tolist() for row in plan_frequencies(problem, plan_pipeline(problem).plans[10])]
    rows = clocks(grouped(problem, plan, 0.5))
    for order, planned, row in zip(problem.graph.order, plan, rows, strict=True):
        kinds = problem.graph.kind_of[order].tolist()
        times = [problem.measured[kind][clock].time_seconds for kind, clock in zip(kinds, planned, strict=True)]
        assert all(sum(times[place] for place in group) >= 0.5 - 1e-9 for group in groups(row))


def test_a_stage_that_is_shorter_than_a_group_remains_as_planned() -> None:
    plan = [[1400, 1100, 800, 1400]]
    assert clocks(grouped(one_stage(2), plan, 1000.0)) == plan


def test_groups_help_where_clock_changes_take_longer_than_operations() -> None:
    problem = measured_problem("bert", 32)
    plan = [row.tolist() for row in plan_frequencies(problem, plan_pipeline(problem).plans[-1])]
    conditions = Conditions(clock_latency_seconds=0.2, iterations=3)
    plain, best = emulate(problem, plan, conditions).mean, best_grouping(problem, plan, conditions).best
    assert best.min_group_seconds > 0
    assert best.emulation.mean.time_seconds < plain.time_seconds
    assert best.emulation.mean.energy_joules < plain.energy_joules
    assert best.emulation.clock_changes < emulate(problem, plan, conditions).clock_changes / 4


@pytest.mark.parametrize("latency", [0.0, 0.0002])
def test_a_plan_stays_as_it_is_where_clock_changes_cost_nothing(latency: float) -> None:
    problem = measured_problem("gpt3", 12)
    plan = [row.tolist() for row in plan_frequencies(problem, plan_pipeline(problem).plans[-1])]
    best = best_grouping(problem, plan, Conditions(clock_latency_seconds=latency, iterations=2)).best
    assert best.min_group_seconds == 0
    assert best.rows == plan
    assert best.emulation.mean.energy_joules == pytest.approx(evaluate(problem, plan).energy_joules, rel=1e-3)
