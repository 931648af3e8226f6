"""Plans: valid, on time, checked by a reference implementation, near the bound and the exact optimum."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.measured_pipelines import measured_problem
from support.pipelines.random_pipelines import problems, randomly
from support.pipelines.reference_solvers import every_plan, exact_plan, reference_evaluation
from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Plan, evaluate, plan_energy_joules, plan_frequencies, undominated
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_planner.frequency.solver.portfolio import breakpoint_plans
from wattloop_planner.frequency.solver.relaxation import Relaxation
from wattloop_planner.frequency.solver.roundings import Roundings


@randomly
@given(problems(), st.sampled_from([3, 8, 40, None]))
def test_every_plan_takes_its_reported_time_and_energy(problem: Problem, count: int | None) -> None:
    for plan in plan_pipeline(problem, count).plans:
        frequencies = [row.tolist() for row in plan_frequencies(problem, plan)]
        time, energy = reference_evaluation(problem, frequencies)
        assert plan.time_seconds == pytest.approx(time, rel=1e-12)
        assert plan_energy_joules(problem, plan) == pytest.approx(energy, rel=1e-9, abs=1e-9)
        realised = evaluate(problem, frequencies)
        assert (realised.time_seconds, realised.energy_joules) == pytest.approx((time, energy), rel=1e-9, abs=1e-9)


@randomly
@given(problems(), st.sampled_from([3, 8, 40, None]))
def test_no_plan_is_dominated_and_both_ends_are_included(problem: Problem, count: int | None) -> None:
    planning = plan_pipeline(problem, count)
    times = [plan.time_seconds for plan in planning.plans]
    costs = [plan.effective_joules for plan in planning.plans]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)
    assert all(slow < fast for slow, fast in pairwise(costs))
    assert times[-1] == pytest.approx(planning.frontier.min_time_seconds, rel=1e-9)
    assert costs[0] == pytest.approx(planning.frontier.effective_joules[0], rel=1e-12, abs=1e-9)
    assert count is None or len(times) <= count
    assert (planning.gaps > -1e-9).all()


@randomly
@given(problems(), st.floats(0.0, 1.0))
def test_a_rounded_plan_is_never_late(problem: Problem, share: float) -> None:
    relaxation = Relaxation(problem)
    for segment in relaxation.segments():
        time = segment.slow_seconds + share * (segment.fast_seconds - segment.slow_seconds)
        (durations,) = segment.durations_at(time)
        choices = np.empty(problem.graph.operations, dtype=np.int16)
        realised, _ = problem.pipeline.round(durations, problem.pipeline.longest_path(durations), choices)
        assert realised <= time * (1 + 1e-11)


@randomly
@given(problems(max_operations=5, max_options=3), st.floats(0.0, 1.1))
def test_an_exact_plan_is_optimal(problem: Problem, share: float) -> None:
    plans = list(every_plan(problem))
    fastest, slowest = min(time for time, _ in plans), max(time for time, _ in plans)
    deadline = fastest + share * (slowest - fastest)
    min_energy = min(effective for time, effective in plans if time <= deadline * (1 + 1e-12))
    found = exact_plan(problem, deadline)
    assert found.time_seconds <= deadline * (1 + 1e-9)
    assert found.effective_joules == pytest.approx(min_energy, rel=1e-9, abs=1e-9)
    assert exact_plan(problem, fastest * 0.999) is None


@randomly
@given(problems(max_operations=6, max_options=3))
def test_no_plan_is_better_than_the_exact_one(problem: Problem) -> None:
    for plan in plan_pipeline(problem, 8).plans:
        best = exact_plan(problem, plan.time_seconds)
        assert best.effective_joules <= plan.effective_joules + 1e-9


@pytest.mark.parametrize("name", ["gpt3", "bloom", "gpt3-a40", "bloom-a100", "bert", "wide-resnet"])
def test_measured_pipelines_are_planned_within_the_documented_gap(name: str) -> None:
    problem = measured_problem(name, 12)
    planning = plan_pipeline(problem)
    assert 30 <= len(planning.plans) <= 40
    assert planning.gaps.mean() <= 0.002
    assert planning.gaps.max() <= 0.01
    min_energy = min(plan_energy_joules(problem, plan) for plan in planning.plans)
    assert min_energy <= planning.frontier.energies_joules.min() * 1.002


@pytest.mark.parametrize("count", [None, 40])
def test_plans_take_no_more_energy_than_lowtime_at_any_deadline(count: int | None) -> None:
    problem = measured_problem("gpt3", 6, stages=4)
    recorded = json.loads((Path(__file__).parent / "lowtime_plans.json").read_text())["plans"]
    lowtime = [reference_evaluation(problem, plan) for plan in recorded]
    own = [(plan.time_seconds, plan_energy_joules(problem, plan)) for plan in plan_pipeline(problem, count).plans]

    def energy_until_deadline(plans: list[tuple[float, float]], deadline: float) -> float:
        """Energy until the deadline under the best plan that meets it, including waiting."""
        waiting = problem.waiting_power_watts
        return min(energy + waiting * (deadline - time) for time, energy in plans if time <= deadline * (1 + 1e-9))

    # A deadline between two of 40 plans costs more; with one plan per breakpoint, it does not.
    compared = own if count else [*lowtime, *own]
    deadlines = sorted(time for time, _ in compared if time >= lowtime[-1][0])
    assert len(deadlines) >= 30
    for deadline in deadlines:
        assert energy_until_deadline(own, deadline) <= energy_until_deadline(lowtime, deadline) * 1.0001


@pytest.mark.parametrize("name", ["gpt3-a40", "bloom-a100"])
def test_no_plan_of_40_takes_more_energy_than_lowtime_in_the_same_time(name: str) -> None:
    recorded = json.loads((Path(__file__).parent / "lowtime_frontiers.json").read_text())["plans"][name]
    problem = measured_problem(name, 12)
    waiting = problem.waiting_power_watts
    compared = 0
    for plan in plan_pipeline(problem).plans:
        effective = [energy - waiting * time for time, energy in recorded if time <= plan.time_seconds * (1 + 1e-9)]
        if effective:
            min_energy = min(effective) + waiting * plan.time_seconds
            assert plan_energy_joules(problem, plan) <= min_energy
            compared += 1
    assert compared >= 35


@pytest.mark.parametrize(("name", "mean", "max_gap"), [("gpt3", 0.0008, 0.0016), ("bloom", 0.0014, 0.005)])
def test_plans_far_from_the_bound_are_not_selected(name: str, mean: float, max_gap: float) -> None:
    gaps = plan_pipeline(measured_problem(name, 12)).gaps
    assert gaps.mean() <= mean
    assert gaps.max() <= max_gap


def test_all_plans_are_at_most_one_per_breakpoint() -> None:
    planning = plan_pipeline(measured_problem("gpt3", 4), None)
    assert 0.9 * len(planning.frontier.times_seconds) <= len(planning.plans) <= len(planning.frontier.times_seconds)


def test_plans_of_too_many_breakpoints_are_thinned_evenly() -> None:
    problem = measured_problem("gpt3", 4)
    every, some = (
        breakpoint_plans(Roundings(problem), Relaxation(problem).segments(), count) for count in (10_000, 50)
    )
    times = [plan.time_seconds for plan in every]
    assert 25 <= len(some) <= 51
    places = [times.index(plan.time_seconds) for plan in some]
    assert len(set(np.diff(places[:-1]).tolist())) <= 2
    assert (some[0].time_seconds, some[-1].time_seconds) == (times[0], times[-1])


def test_planning_twice_gives_the_same_plans() -> None:
    first, second = (plan_pipeline(measured_problem("bloom", 6)).plans for _ in range(2))
    assert [plan.choices.tolist() for plan in first] == [plan.choices.tolist() for plan in second]


def test_too_few_plans_are_rejected() -> None:
    with pytest.raises(UsageError, match="--plans 2: must be 3 "):
        plan_pipeline(measured_problem("gpt3", 1), 2)


@pytest.mark.parametrize(
    ("frequencies", "message"),
    [
        ([[1410, 1410]], "found 1 stages, expected 2"),
        ([[1410, 1410], [1410]], "stage 1: found 1 operations, expected 2"),
        (
            [[1410, 1410], [1410, 1]],
            "stage 1 backward of microbatch 0: found 1 MHz, expected a frequency of the profile",
        ),
    ],
)
def test_frequencies_that_do_not_match_the_graph_are_rejected(frequencies: list[list[int]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate(measured_problem("gpt3", 1, stages=2), frequencies)


def test_of_plans_with_equal_times_the_cheapest_remains() -> None:
    choices = np.zeros(1, dtype=np.int16)
    plans = [Plan(choices, *pair) for pair in ((2.0, 1.0), (1.0, 5.0), (1.0 + 1e-14, 4.0), (3.0, 1.0), (1.5, 4.5))]
    assert [(plan.time_seconds, plan.effective_joules) for plan in undominated(plans)] == [
        (2.0, 1.0),
        (1.0 + 1e-14, 4.0),
    ]
