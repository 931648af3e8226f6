"""Long iterations by their repeated structure, compared with the complete problem."""

from dataclasses import replace

import numpy as np
import pytest

from support.pipelines.measured_pipelines import measured_problem
from support.pipelines.reference_solvers import reference_evaluation
from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.instruction_profiles import Profile
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.plans import plan_energy_joules, plan_frequencies
from wattloop_planner.frequency.pipeline.schedules import EarlyRecomputation, GPipe, Interleaved, Schedule
from wattloop_planner.frequency.solver import steady_state as module
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_planner.frequency.solver.relaxation import relax
from wattloop_planner.frequency.solver.steady_state import SteadyState, steady_state


@pytest.fixture
def any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the repeated structure for any number of operations, so that the complete problem can be solved, too."""
    monkeypatch.setattr(module, "MIN_OPERATIONS", 0)


def steady(problem: Problem) -> SteadyState:
    found = steady_state(problem)
    assert found is not None
    return found


def other_schedule(name: str, schedule: Schedule) -> Problem:
    """The measured stages under another schedule; recomputation takes as long as forward."""
    problem = measured_problem(name, 1, schedule.stages)
    options = dict(problem.profile.options)
    for stage in range(schedule.stages):
        options[stage, "recomputation"] = options[stage, "forward"]
        options[stage, "forwardbackward"] = options[stage, "backward"]
    profile = Profile(name, options)
    return pipeline_problem(schedule_graph(schedule), profile, problem.blocking_power_watts)


def assert_same_frontier(problem: Problem) -> None:
    repeated, complete = steady(problem).frontier, relax(problem)
    assert repeated.min_time_seconds == pytest.approx(complete.min_time_seconds, rel=1e-5)
    assert repeated.max_time_seconds == pytest.approx(complete.max_time_seconds, rel=1e-5)
    times = np.linspace(complete.min_time_seconds * (1 + 1e-5), complete.max_time_seconds * 1.01, 200)
    assert repeated.bound_joules(times) == pytest.approx(complete.bound_joules(times), rel=1e-5)


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize(
    ("name", "stages", "microbatches"),
    [("gpt3", 8, 150), ("bloom", 8, 150), ("gpt3", 3, 64), ("bert", 2, 100), ("wide-resnet", 2, 100), ("gpt3", 1, 20)],
)
def test_the_frontier_equals_that_of_the_complete_problem(name: str, stages: int, microbatches: int) -> None:
    assert_same_frontier(measured_problem(name, microbatches, stages))


@pytest.mark.usefixtures("any_length")
@pytest.mark.parametrize("schedule", [EarlyRecomputation(3, 60), GPipe(3, 60)])
def test_the_frontier_of_other_schedules_equals_that_of_the_complete_problem(schedule: Schedule) -> None:
    assert_same_frontier(other_schedule("gpt3", schedule))


@pytest.mark.usefixtures("any_length")
def test_plans_of_a_long_iteration_are_near_its_bound() -> None:
    problem = measured_problem("gpt3", 80, stages=4)
    planning = plan_pipeline(problem)
    assert planning.steady_microbatches is not None
    assert planning.gaps.mean() <= 0.002
    assert planning.gaps.max() <= 0.01
    for plan in planning.plans[::8]:
        time, energy = reference_evaluation(problem, [row.tolist() for row in plan_frequencies(problem, plan)])
        assert (plan.time_seconds, plan_energy_joules(problem, plan)) == pytest.approx((time, energy), rel=1e-9)


def test_a_short_iteration_is_solved_completely() -> None:
    assert steady_state(measured_problem("gpt3", 96)) is None
    assert plan_pipeline(measured_problem("gpt3", 2)).steady_microbatches is None


@pytest.mark.usefixtures("any_length")
def test_a_schedule_that_does_not_grow_linearly_is_solved_completely() -> None:
    assert steady_state(other_schedule("gpt3", Interleaved(3, 60, 2))) is None


@pytest.mark.usefixtures("any_length")
def test_a_graph_from_a_file_is_solved_completely() -> None:
    problem = measured_problem("gpt3", 150, stages=2)
    assert steady_state(replace(problem, graph=replace(problem.graph, schedule=None))) is None
