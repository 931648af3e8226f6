"""Baselines, compared with values computed by hand and by the reference implementation."""

import pytest

from support.pipelines.measured_pipelines import measured_problem
from support.pipelines.random_pipelines import options_of
from support.pipelines.reference_solvers import reference_evaluation
from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.instruction_profiles import Profile
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.plans import evaluate
from wattloop_planner.frequency.pipeline.schedules import OneForwardOneBackward
from wattloop_planner.frequency.solver.relaxation import relax
from wattloop_research.frequency.baselines import baselines, envpipe

# The second stage is heavier: its forward at 1200 MHz takes 0.12 s, the first stage's at 1000 MHz 0.13 s.
LIGHT = options_of((1200, 0.10, 30.0), (1100, 0.11, 26.0), (1000, 0.13, 24.0))
HEAVY = options_of((1200, 0.12, 40.0), (1100, 0.14, 34.0), (1000, 0.17, 32.0))


def two_stages() -> Problem:
    options = {(0, "forward"): LIGHT, (0, "backward"): LIGHT, (1, "forward"): HEAVY, (1, "backward"): HEAVY}
    return pipeline_problem(schedule_graph(OneForwardOneBackward(2, 2)), Profile("two stages", options), 50.0)


def test_maximum_and_global_clocks_match_the_reference() -> None:
    problem = two_stages()
    found = {(point.method, point.point): point.realised for point in baselines(problem)}
    for clock in (1200, 1100, 1000):
        realised = found["zeus-global", clock]
        expected = reference_evaluation(problem, [[clock] * 4, [clock] * 4])
        assert (realised.time_seconds, realised.energy_joules) == pytest.approx(expected, rel=1e-12)
    assert found["max-frequency", None] == found["zeus-global", 1200]


def test_zeus_per_stage_balances_forwards_against_the_heaviest_stage() -> None:
    problem = two_stages()
    found = {point.point: point.realised for point in baselines(problem) if point.method == "zeus-per-stage"}
    # For 0.12 s the light stage has two nearest clocks, 1100 MHz (0.11 s) and 1000 MHz (0.13 s): it takes the lower.
    for clock, light in ((1200, 1000), (1100, 1000), (1000, 1000)):
        expected = reference_evaluation(problem, [[light] * 4, [clock] * 4])
        assert (found[clock].time_seconds, found[clock].energy_joules) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["gpt3", "bloom"])
def test_envpipe_saves_energy_without_losing_time_and_lies_above_the_bound(name: str) -> None:
    problem = measured_problem(name, 12)
    max_frequency = next(point.realised for point in baselines(problem) if point.method == "max-frequency")
    plan = envpipe(problem)
    found = plan.realised
    assert evaluate(problem, plan.settings) == found
    assert found.time_seconds == pytest.approx(max_frequency.time_seconds, rel=0.01)
    assert found.energy_joules < max_frequency.energy_joules
    assert found.energy_joules > relax(problem).bound_joules(found.time_seconds)


def test_envpipe_ends_where_nothing_can_be_raised() -> None:
    only = options_of((1200, 0.10, 30.0))
    options = {(stage, name): only for stage in (0, 1) for name in ("forward", "backward")}
    problem = pipeline_problem(schedule_graph(OneForwardOneBackward(2, 3)), Profile("one", options), 50.0)
    assert envpipe(problem).realised.time_seconds == pytest.approx(0.8)


def test_stages_without_a_common_clock_have_no_global_point() -> None:
    other = options_of((999, 0.1, 20.0))
    options = {(0, "forward"): LIGHT, (0, "backward"): LIGHT, (1, "forward"): other, (1, "backward"): other}
    problem = pipeline_problem(schedule_graph(OneForwardOneBackward(2, 2)), Profile("mixed", options), 50.0)
    assert {point.method for point in baselines(problem)} == {"max-frequency", "zeus-per-stage", "envpipe"}
