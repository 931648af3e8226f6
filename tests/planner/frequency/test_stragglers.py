"""The rule for a straggler, against paying for the wait in every plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.random_pipelines import problems, randomly
from wattloop_planner.frequency.pipeline.plans import Realised, plan_energy_joules
from wattloop_planner.frequency.pipeline.problem import Problem
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_planner.frequency.stragglers import choose, energy_until


@randomly
@given(problems(), st.floats(1.0, 3.0))
def test_the_chosen_plan_takes_least_until_the_deadline(problem: Problem, slowdown: float) -> None:
    plans = plan_pipeline(problem, 8).plans
    realised = [Realised(plan.time_seconds, plan_energy_joules(problem, plan)) for plan in plans]
    deadline = slowdown * realised[-1].time_seconds
    answer = choose(realised, deadline, problem.waiting_power_watts)
    least = min(
        energy_until(found, deadline, problem.waiting_power_watts)
        for found in realised
        if found.time_seconds <= deadline
    )
    assert answer.meets_deadline
    assert answer.energy_until_deadline_joules == pytest.approx(least, rel=1e-9, abs=1e-9)


def test_the_slowest_plan_in_time_beats_the_one_of_least_energy() -> None:
    # Alone the second takes less; but waiting until 4 s costs 10 J/s anyway.
    plans = [Realised(4.0, 105.0), Realised(3.0, 100.0), Realised(2.0, 120.0)]
    answer = choose(plans, 4.0, 10.0)
    assert (answer.plan, answer.energy_until_deadline_joules) == (0, 105.0)


def test_a_deadline_before_the_fastest_plan_is_not_met() -> None:
    answer = choose([Realised(4.0, 105.0), Realised(2.0, 120.0)], 1.9, 10.0)
    assert (answer.plan, answer.meets_deadline, answer.energy_until_deadline_joules) == (1, False, None)
