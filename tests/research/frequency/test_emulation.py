"""Emulated iterations: exact without latency and noise, and what latency, noise and stragglers add."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pipelines.measured_pipelines import MEASURED, measured_problem
from wattloop.errors import UsageError
from wattloop_planner.frequency import (
    SCHEDULES,
    Option,
    Problem,
    Profile,
    evaluate,
    pipeline_problem,
    schedule_graph,
)
from wattloop_research.frequency.baselines import max_frequency
from wattloop_research.frequency.emulation import Conditions, emulate

FAST, SLOW = Option(1000, 1.0, 400.0), Option(500, 2.0, 300.0)
WAITING_WATTS = 50.0


def one_stage(microbatches: int = 1) -> Problem:
    profile = Profile("one stage", {(0, name): (FAST, SLOW) for name in ("forward", "backward")})
    return pipeline_problem(schedule_graph(SCHEDULES["1f1b"](1, microbatches)), profile, WAITING_WATTS)


def random_plan(problem: Problem, seed: int) -> list[list[int]]:
    choice = random.Random(seed)
    return [
        [choice.choice(sorted(problem.measured[problem.graph.kind_of[operation]])) for operation in order.tolist()]
        for order in problem.graph.order
    ]


@settings(max_examples=30)
@given(name=st.sampled_from(sorted(MEASURED)), microbatches=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_without_latency_and_noise_each_iteration_is_as_evaluated(name: str, microbatches: int, seed: int) -> None:
    problem = measured_problem(name, microbatches)
    plan = random_plan(problem, seed)
    found, expected = emulate(problem, plan, Conditions(iterations=2)), evaluate(problem, plan)
    assert found.times_seconds == pytest.approx(expected.time_seconds, rel=1e-12)
    assert found.energies_joules == pytest.approx(expected.energy_joules, rel=1e-12)
    assert found.late_seconds == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_every_schedule_is_emulated_as_evaluated(schedule: str) -> None:
    graph = schedule_graph(SCHEDULES[schedule](3, 6, 2 if schedule == "interleaved" else 1))
    profile = Profile("example", dict.fromkeys(graph.kinds, (FAST, SLOW)))
    problem = pipeline_problem(graph, profile, WAITING_WATTS)
    plan = random_plan(problem, 7)
    found, expected = emulate(problem, plan, Conditions(iterations=1)).mean, evaluate(problem, plan)
    assert (found.time_seconds, found.energy_joules) == pytest.approx((expected.time_seconds, expected.energy_joules))


def test_an_operation_runs_at_the_clock_before_until_the_change_is_in_effect() -> None:
    # The forward is planned at 1000 MHz and the backward at 500 MHz. In the first iteration the forward is at its
    # clock. The backward runs 0.5 s at 1000 MHz, which is half of its work, and then 1 s at 500 MHz.
    found = emulate(one_stage(), [[1000, 500]], Conditions(clock_latency_seconds=0.5, iterations=1))
    assert found.times_seconds[0] == pytest.approx(1.0 + 0.5 + 1.0)
    assert found.energies_joules[0] == pytest.approx(400 + 0.5 * 400 + 0.5 * 300)
    assert found.clock_changes == 2
    assert found.late_seconds == pytest.approx(0.5)


def test_the_next_iteration_begins_at_the_clock_of_the_last_operation() -> None:
    found = emulate(one_stage(), [[1000, 500]], Conditions(clock_latency_seconds=0.5, iterations=2))
    # The forward runs 0.5 s at 500 MHz, a quarter of its work, then 0.75 s at 1000 MHz.
    assert found.times_seconds[1] == pytest.approx(0.5 + 0.75 + 0.5 + 1.0)


def test_a_request_during_a_change_waits_for_its_end() -> None:
    # 500 MHz is requested at 1 s and in effect at 2.5 s; the second operation ends at 2 s before that. 1000 MHz,
    # requested at 2 s, is in effect at 4 s. The third operation does half of its work until 2.5 s, and the rest at
    # 500 MHz until 3.5 s. The last one does a quarter of its work until 4 s, and the rest in 0.75 s.
    found = emulate(one_stage(2), [[1000, 500, 1000, 500]], Conditions(clock_latency_seconds=1.5, iterations=1))
    assert found.times_seconds[0] == pytest.approx(4.75)
    assert found.late_seconds == pytest.approx(1.0 + 1.0 + 0.75)


def test_a_newer_request_replaces_one_that_waits() -> None:
    # 500 MHz, requested at 1 s, is in effect at 4.5 s. Of the requests at 2, 3 and 4 s only the last, 1000 MHz, is
    # carried out, from 4.5 s to 8 s.
    found = emulate(one_stage(2), [[1000, 500, 1000, 500]], Conditions(clock_latency_seconds=3.5, iterations=2))
    assert found.times_seconds == pytest.approx([4.0, (0.5 + 1.0) + 2.0 + (0.5 + 0.75) + 1.0])


@settings(max_examples=20)
@given(name=st.sampled_from(sorted(MEASURED)), seed=st.integers(0, 2**32), latency=st.floats(1e-4, 0.02))
def test_a_lead_of_the_latency_hides_it_if_nothing_varies(name: str, seed: int, latency: float) -> None:
    problem = measured_problem(name, 4)
    plan = random_plan(problem, seed)
    found = emulate(problem, plan, Conditions(clock_latency_seconds=latency, lead_seconds=latency, iterations=1)).mean
    expected = evaluate(problem, plan)
    assert (found.time_seconds, found.energy_joules) == pytest.approx(
        (expected.time_seconds, expected.energy_joules), rel=1e-9
    )


def test_noise_depends_on_the_seed_alone_and_keeps_the_mean_of_a_stage() -> None:
    problem = one_stage(50)
    plan = [[1000] * 100]
    found = [emulate(problem, plan, Conditions(noise=0.1, iterations=40, seed=seed)) for seed in (1, 1, 2)]
    assert found[0].times_seconds.tolist() == found[1].times_seconds.tolist() != found[2].times_seconds.tolist()
    # 4000 operations of 1 s ± 0.1 s.
    assert float(np.mean(found[0].times_seconds)) == pytest.approx(100, abs=0.8)
    assert found[0].energies_joules == pytest.approx(400 * found[0].times_seconds)


def test_an_iteration_lasts_as_long_as_the_straggler_and_waits_at_the_blocking_power() -> None:
    problem = measured_problem("bert", 4)
    plan = [[max(problem.measured[problem.graph.kind_of[i]]) for i in row.tolist()] for row in problem.graph.order]
    fastest = max_frequency(problem)
    found = emulate(problem, plan, Conditions(straggler_seconds=1.3 * fastest.time_seconds, iterations=2))
    assert found.times_seconds == pytest.approx(1.3 * fastest.time_seconds)
    waited = problem.waiting_power_watts * 0.3 * fastest.time_seconds
    assert found.energies_joules == pytest.approx(fastest.energy_joules + waited)


def test_a_slow_stage_takes_its_factor_longer() -> None:
    found = emulate(one_stage(), [[1000, 1000]], Conditions(slow_stages={0: 1.25}, iterations=1)).mean
    assert (found.time_seconds, found.energy_joules) == pytest.approx((2.5, 1000.0))


def test_a_clock_that_an_instruction_lacks_counts_as_the_nearest_one() -> None:
    profile = Profile("example", {(0, "forward"): (FAST, SLOW), (0, "backward"): (SLOW,)})
    problem = pipeline_problem(schedule_graph(SCHEDULES["1f1b"](1, 1)), profile, WAITING_WATTS)
    found = emulate(problem, [[1000, 500]], Conditions(clock_latency_seconds=0.5, iterations=1))
    assert found.times_seconds[0] == pytest.approx(1.0 + 2.0)


@pytest.mark.parametrize(
    ("plan", "conditions", "message"),
    [
        ([[1000, 500], [1000]], {}, "found 2 stages, expected 1"),
        ([[1000]], {}, "stage 0: found 1 operations, expected 2"),
        ([[1000, 600]], {}, "found 600 MHz, expected a frequency of the profile"),
        ([[1000, 500]], {"slow_stages": {1: 2.0}}, "--slow-stage 1: must be a stage from 0 to 0"),
    ],
)
def test_a_plan_or_a_stage_of_another_pipeline_is_rejected(
    plan: list[list[int]], conditions: dict[str, dict[int, float]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        emulate(one_stage(), plan, Conditions(**conditions))


@pytest.mark.parametrize(
    "values",
    [
        {"clock_latency_seconds": -1.0},
        {"lead_seconds": float("nan")},
        {"noise": 1.5},
        {"straggler_seconds": float("inf")},
        {"slow_stages": {0: 0.0}},
        {"iterations": 0},
    ],
)
def test_impossible_conditions_are_rejected(values: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be"):
        Conditions(**values)
