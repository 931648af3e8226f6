"""The choice of a point: by time, deadline, cost, and while another pipeline is a straggler."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.random_pipelines import problems, randomly
from wattloop.energy.cost import CostModel
from wattloop.errors import UsageError
from wattloop_planner.frequency.choice_rules import (
    ChosenPoint,
    CostRule,
    Deadline,
    FastestRule,
    Rule,
    choose,
    choose_point,
    energy_until,
)
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Realised, plan_energy_joules
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_research.frequency.baselines import max_frequency

PLANS = [Realised(1.4, 99.0), Realised(1.2, 90.0), Realised(1.1, 92.0), Realised(1.0, 100.0), Realised(0.9, 120.0)]
MAX_CLOCKS = Realised(1.0, 150.0)


def chosen(rule: Rule, straggler: float | None = None) -> ChosenPoint:
    return choose_point(PLANS, rule, max_clocks=MAX_CLOCKS, straggler_seconds=straggler)


@pytest.mark.parametrize(
    ("rule", "straggler", "time", "in_time", "for_straggler"),
    [
        (FastestRule(), None, 1.0, True, False),
        (FastestRule(), 0.95, 1.0, True, False),
        (FastestRule(), 1.05, 1.0, True, False),
        (FastestRule(), 1.15, 1.1, True, True),
        (FastestRule(), 9.0, 1.4, True, True),
        (Deadline(1.15), None, 1.1, True, False),
        (Deadline(9.0), None, 1.2, True, False),
        (Deadline(0.5), None, 0.9, False, False),
        (Deadline(0.5), 1.1, 1.1, False, True),
        (CostRule(CostModel(1.0, 100.0)), None, 1.2, True, False),
        (CostRule(CostModel(0.0, 100.0)), None, 0.9, True, False),
        (CostRule(CostModel(0.5, 20.0)), None, 1.1, True, False),
        (CostRule(CostModel(0.0, 100.0)), 1.2, 1.2, True, True),
    ],
)
def test_the_point_follows_the_rule_and_the_straggler(
    rule: Rule, straggler: float | None, time: float, in_time: bool, for_straggler: bool
) -> None:
    found = chosen(rule, straggler)
    assert (found.realised.time_seconds, found.in_time, found.for_straggler) == (time, in_time, for_straggler)
    assert PLANS[found.plan] == found.realised


@randomly
@given(problems(), st.floats(0.0, 3.0))
def test_without_time_lost_no_plan_takes_less_energy_and_a_straggler_pays_least_until_its_end(
    problem: Problem, slowdown: float
) -> None:
    plans = [Realised(plan.time_seconds, plan_energy_joules(problem, plan)) for plan in plan_pipeline(problem, 8).plans]
    max_clocks = max_frequency(problem)
    base = choose_point(plans, FastestRule(), max_clocks=max_clocks)
    # The fastest plan is at least as fast as any, so the rule always finds one in time.
    assert base.in_time
    # The highest clock of a random profile may be slower than another one, at less energy.
    is_faster = base.realised.time_seconds < max_clocks.time_seconds
    assert is_faster or base.realised.energy_joules <= max_clocks.energy_joules * (1 + 1e-9)
    straggler = slowdown * max_clocks.time_seconds
    found = choose_point(plans, FastestRule(), max_clocks=max_clocks, straggler_seconds=straggler)
    assert found.realised.time_seconds >= base.realised.time_seconds
    if straggler < base.realised.time_seconds:
        assert found == base
        return
    until = energy_until(found.realised, straggler, problem.waiting_power_watts)
    for plan in plans:
        if plan.time_seconds <= straggler:
            assert until <= energy_until(plan, straggler, problem.waiting_power_watts) * (1 + 1e-9) + 1e-9


def test_no_plan_and_an_impossible_deadline_are_refused() -> None:
    with pytest.raises(UsageError, match="there is no plan to choose from"):
        choose_point([], FastestRule(), max_clocks=MAX_CLOCKS)
    with pytest.raises(UsageError, match="the deadline is 0 s; it must be a finite time above 0"):
        Deadline(0.0)


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
