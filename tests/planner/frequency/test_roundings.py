"""Every variant of rounding meets the time of the relaxed schedule, and the fastest plan the minimum of all plans."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.measured_pipelines import PERSEUS, measured_problem
from support.pipelines.random_pipelines import problems, randomly
from support.pipelines.reference_solvers import reference_evaluation
from support.test_sets.parameters import exhaustive_after
from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.instruction_profiles import Profile
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.plans import evaluate, plan_energy_joules, plan_frequencies, realised_plan
from wattloop_planner.frequency.pipeline.profile_file import read_profile
from wattloop_planner.frequency.pipeline.schedules import SCHEDULES
from wattloop_planner.frequency.solver import roundings as module
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_planner.frequency.solver.relaxation import Relaxation
from wattloop_planner.frequency.solver.roundings import Roundings, fastest_plan, min_time_seconds


@randomly
@given(problems(), st.floats(0.0, 1.0))
def test_every_variant_of_rounding_meets_the_deadline_and_reports_its_energy(problem: Problem, share: float) -> None:
    roundings = Roundings(problem)
    for segment in Relaxation(problem).segments():
        time = segment.slow_seconds + share * (segment.fast_seconds - segment.slow_seconds)
        (durations,) = segment.durations_at(time)
        plans = list(roundings.plans(durations))
        assert len(plans) == 4
        for plan in plans:
            assert plan.time_seconds <= time * (1 + 1e-11)
            found = reference_evaluation(problem, [row.tolist() for row in plan_frequencies(problem, plan)])
            assert (plan.time_seconds, plan_energy_joules(problem, plan)) == pytest.approx(found, rel=1e-9, abs=1e-9)


def test_each_variant_of_rounding_is_the_best_for_some_schedule() -> None:
    problem = measured_problem("gpt3-a40", 12)
    roundings = Roundings(problem)
    best = set()
    for segment in Relaxation(problem).segments():
        (durations,) = segment.durations_at(segment.fast_seconds)
        costs = [plan.effective_joules + segment.price_watts * plan.time_seconds for plan in roundings.plans(durations)]
        best.add(costs.index(min(costs)))
    assert best == {0, 1, 2, 3}


def test_many_operations_are_rounded_in_one_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = measured_problem("gpt3", 4)
    monkeypatch.setattr(module, "MANY_OPERATIONS", problem.graph.operations - 1)
    assert len(list(Roundings(problem).plans(problem.durations_of(problem.slowest)))) == 1


def long_problem(file: str, stages: int, microbatches: int, power: float) -> Problem:
    """A pipeline whose last stage is the last of a published profile, and all others the first."""
    options = read_profile(PERSEUS / file).options
    last = max(stage for stage, _ in options)
    sources = [0] * (stages - 1) + [last]
    names = ("forward", "backward")
    widened = {(stage, name): options[source, name] for stage, source in enumerate(sources) for name in names}
    return pipeline_problem(schedule_graph(SCHEDULES["1f1b"](stages, microbatches)), Profile(file, widened), power)


@pytest.mark.parametrize(
    ("file", "stages", "microbatches", "power", "highest_are_fastest", "max_gap"),
    exhaustive_after(
        [
            ("stage_profile/bloom+a100_sxm_bf16.csv", 8, 700, 83.64, False, 0.015),
            ("stage_profile/gpt3-175b+a100_sxm_bf16.csv", 16, 2048, 83.64, True, 0.0015),
            ("stage_profile/gpt3-175b+a40_bf16.csv", 8, 1000, 70.38, True, 0.015),
        ]
    ),
)
def test_the_fastest_plan_of_a_long_iteration_takes_exactly_the_minimum_time(
    file: str, stages: int, microbatches: int, power: float, highest_are_fastest: bool, max_gap: float
) -> None:
    problem = long_problem(file, stages, microbatches, power)
    planning = plan_pipeline(problem)
    fastest = planning.plans[-1]
    assert planning.steady_microbatches is not None
    assert fastest.time_seconds == realised_plan(problem, problem.fastest).time_seconds
    # The minimum time alone is trivial: every operation at its fastest option takes it.
    assert planning.gaps[-1] <= max_gap
    found = evaluate(problem, [row.tolist() for row in plan_frequencies(problem, fastest)])
    assert found.time_seconds == fastest.time_seconds
    highest = [
        [max(problem.measured[problem.graph.kind_of[o]]) for o in order.tolist()] for order in problem.graph.order
    ]
    assert (evaluate(problem, highest).time_seconds <= fastest.time_seconds) is highest_are_fastest


@randomly
@given(problems(), st.sampled_from([3, 40, None]))
def test_the_fastest_plan_of_any_pipeline_takes_exactly_the_minimum_time(problem: Problem, count: int | None) -> None:
    assert plan_pipeline(problem, count).plans[-1].time_seconds == min_time_seconds(problem)


@randomly
@given(problems(), st.floats(0.0, 3.0), st.integers(0, 2**32 - 1))
def test_any_durations_give_a_plan_of_exactly_the_minimum_time(problem: Problem, max_stretch: float, seed: int) -> None:
    fastest = problem.durations_of(problem.fastest)
    longer = fastest * (1 + max_stretch * np.random.default_rng(seed).random(problem.graph.operations))
    plan = fastest_plan(problem, longer)
    assert plan.time_seconds == min_time_seconds(problem)
    fastest_joules = realised_plan(problem, problem.fastest).effective_joules
    assert plan.effective_joules <= fastest_joules + 1e-9 * abs(fastest_joules)
    time, _ = reference_evaluation(problem, [row.tolist() for row in plan_frequencies(problem, plan)])
    assert time == pytest.approx(plan.time_seconds, rel=1e-12)


def test_the_fastest_plan_from_the_slowest_durations_is_near_the_bound() -> None:
    problem = measured_problem("gpt3", 12)
    frontier = plan_pipeline(problem).frontier
    slowest = fastest_plan(problem, problem.durations_of(problem.slowest))
    bound = float(frontier.bound_joules(slowest.time_seconds))
    energy = slowest.effective_joules + problem.waiting_power_watts * slowest.time_seconds
    assert bound <= energy <= bound * 1.05
