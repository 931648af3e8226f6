"""The relaxation's frontier: comparison with HiGHS, and invariants."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.measured_pipelines import measured_problem
from support.pipelines.random_pipelines import EXHAUSTIVE, options_of, problems, randomly
from support.pipelines.reference_solvers import LinearProgram, every_plan, longest_path
from support.test_sets.parameters import exhaustive_after
from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.instruction_profiles import Profile
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.schedules import SCHEDULES
from wattloop_planner.frequency.solver.relaxation import Relaxation, relax


def assert_equals_linear_program(problem: Problem, max_times: int) -> None:
    frontier = relax(problem)
    program = LinearProgram(problem)
    chosen = np.unique(np.linspace(0, len(frontier.times_seconds) - 1, max_times).astype(int))
    times = frontier.times_seconds[chosen]
    between = (times[1:] + times[:-1]) / 2
    for time in [*times.tolist(), *between[:: max(len(between) // 5, 1)].tolist()]:
        expected = program.min_effective_joules(time * (1 + 1e-13)) + problem.waiting_power_watts * time
        assert frontier.bound_joules(time) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "microbatches", "stages"),
    exhaustive_after([("bloom", 12, 8), ("gpt3", 12, 8), ("bert", 32, 4), ("wide-resnet", 24, 4)]),
)
def test_breakpoints_of_measured_profiles_equal_the_linear_program(name: str, microbatches: int, stages: int) -> None:
    assert_equals_linear_program(measured_problem(name, microbatches, stages), 10_000 if EXHAUSTIVE else 3)


@pytest.mark.parametrize(
    ("name", "stages"), exhaustive_after([("gpt3", 2), ("bert", 1), ("bloom", 2), ("wide-resnet", 1)], usual=2)
)
def test_every_breakpoint_of_a_short_pipeline_equals_the_linear_program(name: str, stages: int) -> None:
    assert_equals_linear_program(measured_problem(name, 2, stages), 10_000)


@randomly
@given(problems())
def test_breakpoints_of_a_random_graph_equal_the_linear_program(problem: Problem) -> None:
    assert_equals_linear_program(problem, 10_000 if EXHAUSTIVE else 5)


@randomly
@given(problems(max_operations=5, max_options=3))
def test_no_plan_lies_below_the_frontier_and_its_ends_are_plans(problem: Problem) -> None:
    frontier = relax(problem)
    plans = list(every_plan(problem))
    for time, effective in plans:
        bound = frontier.bound_joules(time) - problem.waiting_power_watts * time
        assert effective >= bound - 1e-9 * max(1.0, abs(effective))
    assert frontier.min_time_seconds == pytest.approx(min(time for time, _ in plans), rel=1e-12)
    assert frontier.effective_joules[0] == pytest.approx(min(effective for _, effective in plans), rel=1e-12, abs=1e-12)


@randomly
@given(problems(), st.floats(0.0, 1.0))
def test_relaxed_durations_meet_their_time_at_the_cost_of_the_frontier(problem: Problem, share: float) -> None:
    relaxation = Relaxation(problem)
    for segment in relaxation.segments():
        time = segment.slow_seconds + share * (segment.fast_seconds - segment.slow_seconds)
        (durations,) = segment.durations_at(time)
        assert longest_path(problem.graph, durations.tolist()) == pytest.approx(time, rel=1e-12)
        cost = 0.0
        for kind, duration in zip(problem.graph.kind_of.tolist(), durations.tolist(), strict=True):
            options = problem.options[kind]
            times, costs = options.times_seconds[options.corners], options.effective_joules[options.corners]
            assert times[0] * (1 - 1e-12) <= duration <= times[-1] * (1 + 1e-12)
            cost += float(np.interp(duration, times, costs))
        back = (segment.fast_seconds - time) * segment.price_watts
        assert cost == pytest.approx(segment.fast_effective_joules + back, rel=1e-9, abs=1e-9)


@randomly
@given(problems(), st.floats(0.01, 2.0))
def test_a_walk_with_a_spacing_yields_the_pieces_that_contain_a_multiple(problem: Problem, share: float) -> None:
    every = list(Relaxation(problem).segments())
    distances = [(piece.slow_seconds - piece.fast_seconds) * math.sqrt(piece.price_watts) for piece in every]
    spacing = share * sum(distances) or 1.0
    relaxation = Relaxation(problem)
    chosen = [(piece, piece.durations_at(piece.fast_seconds)[0]) for piece in relaxation.segments(spacing)]
    walked = np.cumsum(distances) / spacing
    # A distance that is a multiple within rounding errors may count or not.
    clear = (np.abs(walked - np.round(walked)) > 1e-9) | (walked == 0)
    by_time = {piece.fast_seconds: piece for piece, _ in chosen}
    for piece, before, after, sure in zip(every[1:], walked[:-1], walked[1:], clear[1:] & clear[:-1], strict=True):
        passed = math.floor(after) - math.floor(before)
        if sure and (passed or piece is every[-1]):
            assert by_time[piece.fast_seconds][:4] == piece[:4]
            assert by_time[piece.fast_seconds].passed == passed
        elif sure:
            assert piece.fast_seconds not in by_time
    assert chosen[-1][0].fast_seconds == every[-1].fast_seconds
    for piece, durations in chosen:
        assert longest_path(problem.graph, durations.tolist()) == pytest.approx(piece.fast_seconds, rel=1e-12)
    assert relaxation.frontier.times_seconds.tolist() == [piece.fast_seconds for piece in every]
    assert relaxation.frontier.effective_joules.tolist() == [piece.fast_effective_joules for piece in every]


@pytest.mark.parametrize(("stages", "microbatches"), exhaustive_after([(2, 2), (1, 1), (3, 4)]))
def test_every_breakpoint_of_many_frequencies_on_a_smooth_curve_equals_the_linear_program(
    stages: int, microbatches: int
) -> None:
    def option(megahertz: int, scale: float) -> tuple[int, float, float]:
        seconds = scale * (0.25 + 0.75 * 1980 / megahertz)
        return megahertz, seconds, seconds * (120 + 480 * (megahertz / 1980) ** 2.6)

    options = {
        (stage, name): options_of(
            *(option(megahertz, scale * (1 + 0.03 * stage)) for megahertz in range(345, 1981, 45))
        )
        for stage in range(stages)
        for name, scale in (("forward", 0.05), ("backward", 0.11))
    }
    graph = schedule_graph(SCHEDULES["1f1b"](stages, microbatches))
    problem = pipeline_problem(graph, Profile("smooth", options), 75.0)
    assert min(len(kind.corners) for kind in problem.options) > 20
    assert_equals_linear_program(problem, 10_000 if EXHAUSTIVE or stages < 3 else 60)


def edge_case(name: str) -> Problem:
    falling = options_of((1000, 0.1, 30.0), (900, 0.12, 25.0), (800, 0.16, 22.0))
    stages, microbatches, power = 3, 4, 50.0
    options = {(stage, name): falling for stage in range(3) for name in ("forward", "backward")}
    if name == "one option only":
        options = dict.fromkeys(options, falling[:1])
    elif name == "equal times":
        options = dict.fromkeys(options, options_of((1000, 0.1, 30.0), (900, 0.1, 25.0), (800, 0.1, 40.0)))
    elif name == "no blocking power":
        power = 0.0
    elif name == "blocking power above every option's":
        power = 1e4
    elif name == "one operation far longer":
        options[1, "backward"] = options_of((1000, 100.0, 3e4), (900, 130.0, 2e4))
    elif name == "one stage":
        stages, options = 1, {key: options[key] for key in options if key[0] == 0}
    elif name == "one microbatch":
        microbatches = 1
    elif name == "fewer microbatches than stages":
        microbatches = 2
    elif name == "times a rounding apart":
        options = dict.fromkeys(options, options_of((1000, 0.1, 30.0), (900, 0.1 + 2e-17, 25.0), (800, 0.16, 22.0)))
    return pipeline_problem(schedule_graph(SCHEDULES["1f1b"](stages, microbatches)), Profile(name, options), power)


@pytest.mark.parametrize(
    "name",
    [
        "one option only",
        "equal times",
        "no blocking power",
        "blocking power above every option's",
        "one operation far longer",
        "one stage",
        "one microbatch",
        "fewer microbatches than stages",
        "times a rounding apart",
    ],
)
def test_edge_cases_equal_the_linear_program(name: str) -> None:
    assert_equals_linear_program(edge_case(name), 10_000)
