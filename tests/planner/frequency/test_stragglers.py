"""The plan for a straggler, compared with the energy of every plan including waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.random_pipelines import problems, randomly
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Realised, plan_energy_joules
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_planner.frequency.stragglers import choose, energy_until


@randomly
@given(problems(), st.floats(1.0, 3.0))
def test_the_chosen_plan_takes_the_minimum_energy_until_the_deadline(problem: Problem, slowdown: float) -> None:
    plans = plan_pipeline(problem, 8).plans
    realised = [Realised(plan.time_seconds, plan_energy_joules(problem, plan)) for plan in plans]
    deadline = slowdown * realised[-1].time_seconds
    chosen = choose(realised, deadline, problem.waiting_power_watts)
    min_energy = min(
        energy_until(found, deadline, problem.waiting_power_watts)
        for found in realised
        if found.time_seconds <= deadline
    )
    assert chosen.meets_deadline
    assert chosen.energy_until_deadline_joules == pytest.approx(min_energy, rel=1e-9, abs=1e-9)


def test_the_slowest_plan_in_time_beats_the_one_of_minimum_energy() -> None:
    # The second plan takes less energy, but waiting until 4 s costs 10 J/s.
    plans = [Realised(4.0, 105.0), Realised(3.0, 100.0), Realised(2.0, 120.0)]
    chosen = choose(plans, 4.0, 10.0)
    assert (chosen.plan, chosen.energy_until_deadline_joules) == (0, 105.0)


def test_a_deadline_before_the_fastest_plan_is_not_met() -> None:
    chosen = choose([Realised(4.0, 105.0), Realised(2.0, 120.0)], 1.9, 10.0)
    assert (chosen.plan, chosen.meets_deadline, chosen.energy_until_deadline_joules) == (1, False, None)
