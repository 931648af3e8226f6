"""The selection of plans: minimum mean square loss, compared with every possible selection."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.random_pipelines import randomly
from wattloop_planner.frequency.pipeline.plans import Plan
from wattloop_planner.frequency.solver.relaxation import Frontier
from wattloop_planner.frequency.solver.selection import MAX_OPTIMAL, spread_plans

WAITING_WATTS = 3.0
# A convex frontier whose price of time rises from 1 W to 8 W.
FRONTIER = Frontier(np.array([10.0, 8.0, 6.0, 5.0]), np.array([100.0, 102.0, 110.0, 118.0]), WAITING_WATTS)
CHOICES = np.zeros(1, dtype=np.int16)
# Times in hundredths of a second, and by how many joules each plan is above the frontier.
POOLS = st.dictionaries(st.integers(500, 1000), st.floats(0, 3), min_size=3, max_size=9)


def plan(hundredths: int, above: float) -> Plan:
    time = hundredths / 100
    bound = float(FRONTIER.bound_joules(time)) - WAITING_WATTS * time
    return Plan(CHOICES, time, bound + above)


def square_loss(plans: list[Plan]) -> float:
    """The integral over the deadlines, by the midpoint rule."""
    ordered = sorted(plans, key=lambda plan: plan.time_seconds)
    times = np.array([plan.time_seconds for plan in ordered])
    edges = np.linspace(times[0], times[-1], 20_001)
    middles = (edges[1:] + edges[:-1]) / 2
    costs = np.array([plan.effective_joules for plan in ordered])[np.searchsorted(times, middles, side="right") - 1]
    bounds = FRONTIER.bound_joules(middles) - WAITING_WATTS * middles
    return float(np.sum((costs - bounds) ** 2) * (edges[1] - edges[0]))


def own_loss(plans: list[Plan], count: int) -> float:
    """The square losses at the plans' own times, except the slowest, each over an equal share of the deadlines."""
    times = [plan.time_seconds for plan in plans]
    share = (max(times) - min(times)) / count
    selected = [plan for plan in plans if plan.time_seconds < max(times)]
    return sum((energy(plan) - float(FRONTIER.bound_joules(plan.time_seconds))) ** 2 for plan in selected) * share


def energy(plan: Plan) -> float:
    return plan.effective_joules + WAITING_WATTS * plan.time_seconds


@randomly
@given(POOLS, st.integers(3, 6))
def test_the_selected_plans_have_the_smallest_loss_of_all_selections(pool: dict[int, float], count: int) -> None:
    plans = [plan(*item) for item in pool.items()]
    every = spread_plans(FRONTIER, plans, len(plans) + 3)
    selected = spread_plans(FRONTIER, plans, count)
    needed = [every[0], min(every[::-1], key=energy), every[-1]]
    others = [plan for plan in every if all(plan is not one for one in needed)]
    distinct = list({id(plan): plan for plan in needed}.values())
    free = min(max(count - len(distinct), 0), len(others))
    min_loss = min(
        square_loss([*distinct, *some]) + own_loss([*distinct, *some], count) for some in combinations(others, free)
    )
    assert len(selected) == min(count, len(every))
    assert all(any(plan is one for one in selected) for plan in needed)
    assert square_loss(selected) + own_loss(selected, count) <= min_loss * 1.01 + 1e-3


@pytest.mark.parametrize("count", [3, 20, MAX_OPTIMAL, MAX_OPTIMAL + 1, 400])
def test_of_many_plans_the_requested_number_is_selected_in_order(count: int) -> None:
    plans = [plan(hundredths, (hundredths * 7919 % 13) / 100) for hundredths in range(500, 1000)]
    every, selected = (spread_plans(FRONTIER, plans, limit) for limit in (1000, count))
    times = [plan.time_seconds for plan in selected]
    assert len(selected) == min(count, len(every))
    assert times == sorted(times, reverse=True)
    assert (selected[0], selected[-1]) == (every[0], every[-1])
    assert min(map(energy, selected)) == min(map(energy, every))


@pytest.mark.parametrize(("count", "step", "above", "far_selected"), [(40, 10, 0.2, 0), (MAX_OPTIMAL + 1, 8, 0.25, 2)])
def test_plans_near_the_bound_are_preferred_to_distant_neighbours(
    count: int, step: int, above: float, far_selected: int
) -> None:
    near = [plan(hundredths, 0.0) for hundredths in range(500, 1001, step)]
    far = [plan(hundredths + step // 2, above) for hundredths in range(500, 1000 - step, step)]
    selected = spread_plans(FRONTIER, [*near, *far], count)
    assert len(selected) == count
    # Distant plans are selected only if there are too few near ones.
    assert far_selected == max(count - len(near), 0)
    assert sum(any(one is other for other in far) for one in selected) == far_selected


def test_greedy_removal_loses_little_more_than_the_optimal_selection() -> None:
    plans = [plan(hundredths, 0.0) for hundredths in range(500, 1001, 2)]
    best, one_by_one = (square_loss(spread_plans(FRONTIER, plans, MAX_OPTIMAL + more)) for more in (0, 1))
    assert one_by_one <= best * 1.3
