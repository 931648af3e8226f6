"""Every variant of rounding meets the time of the relaxed schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.measured_pipelines import measured_problem
from support.pipelines.random_pipelines import problems, randomly
from support.pipelines.reference_solvers import reference_evaluation
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import plan_energy_joules, plan_frequencies
from wattloop_planner.frequency.solver import roundings as module
from wattloop_planner.frequency.solver.relaxation import Relaxation
from wattloop_planner.frequency.solver.roundings import Roundings


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
