"""Which plans are kept: those of least mean square loss, against every choice there is."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.random_pipelines import randomly
from wattloop_planner.frequency.pipeline.plans import Plan
from wattloop_planner.frequency.solver.relaxation import Frontier
from wattloop_planner.frequency.solver.selection import MAX_CHOSEN_BEST, spread_plans

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
    """The integral over the deadlines, by the midpoints of many short pieces."""
    ordered = sorted(plans, key=lambda plan: plan.time_seconds)
    times = np.array([plan.time_seconds for plan in ordered])
    edges = np.linspace(times[0], times[-1], 20_001)
    middles = (edges[1:] + edges[:-1]) / 2
    costs = np.array([plan.effective_joules for plan in ordered])[np.searchsorted(times, middles, side="right") - 1]
    bounds = FRONTIER.bound_joules(middles) - WAITING_WATTS * middles
    return float(np.sum((costs - bounds) ** 2) * (edges[1] - edges[0]))


def own_loss(plans: list[Plan], count: int) -> float:
    """The square losses at the plans' own times but the slowest's, each over an equal share of the deadlines."""
    times = [plan.time_seconds for plan in plans]
    share = (max(times) - min(times)) / count
    kept = [plan for plan in plans if plan.time_seconds < max(times)]
    return sum((energy(plan) - float(FRONTIER.bound_joules(plan.time_seconds))) ** 2 for plan in kept) * share


def energy(plan: Plan) -> float:
    return plan.effective_joules + WAITING_WATTS * plan.time_seconds


@randomly
@given(POOLS, st.integers(3, 6))
def test_the_plans_kept_lose_least_of_all_choices(pool: dict[int, float], count: int) -> None:
    plans = [plan(*item) for item in pool.items()]
    every = spread_plans(FRONTIER, plans, len(plans) + 3)
    kept = spread_plans(FRONTIER, plans, count)
    needed = [every[0], min(every[::-1], key=energy), every[-1]]
    others = [plan for plan in every if all(plan is not one for one in needed)]
    distinct = list({id(plan): plan for plan in needed}.values())
    free = min(max(count - len(distinct), 0), len(others))
    least = min(
        square_loss([*distinct, *some]) + own_loss([*distinct, *some], count) for some in combinations(others, free)
    )
    assert len(kept) == min(count, len(every))
    assert all(any(plan is one for one in kept) for plan in needed)
    assert square_loss(kept) + own_loss(kept, count) <= least * 1.01 + 1e-3


@pytest.mark.parametrize("count", [3, 20, MAX_CHOSEN_BEST, MAX_CHOSEN_BEST + 1, 400])
def test_of_many_plans_as_many_as_wanted_are_kept_in_order(count: int) -> None:
    plans = [plan(hundredths, (hundredths * 7919 % 13) / 100) for hundredths in range(500, 1000)]
    every, kept = (spread_plans(FRONTIER, plans, most) for most in (1000, count))
    times = [plan.time_seconds for plan in kept]
    assert len(kept) == min(count, len(every))
    assert times == sorted(times, reverse=True)
    assert (kept[0], kept[-1]) == (every[0], every[-1])
    assert min(map(energy, kept)) == min(map(energy, every))


@pytest.mark.parametrize(("count", "step", "above", "far_kept"), [(40, 10, 0.2, 0), (MAX_CHOSEN_BEST + 1, 8, 0.25, 2)])
def test_plans_far_from_the_bound_are_passed_over_for_near_ones_beside_them(
    count: int, step: int, above: float, far_kept: int
) -> None:
    near = [plan(hundredths, 0.0) for hundredths in range(500, 1001, step)]
    far = [plan(hundredths + step // 2, above) for hundredths in range(500, 1000 - step, step)]
    kept = spread_plans(FRONTIER, [*near, *far], count)
    assert len(kept) == count
    # Only as many as there are too few near ones.
    assert far_kept == max(count - len(near), 0)
    assert sum(any(one is other for other in far) for one in kept) == far_kept


def test_leaving_out_the_least_useful_one_by_one_loses_little_more_than_the_best_choice() -> None:
    plans = [plan(hundredths, 0.0) for hundredths in range(500, 1001, 2)]
    best, one_by_one = (square_loss(spread_plans(FRONTIER, plans, MAX_CHOSEN_BEST + more)) for more in (0, 1))
    assert one_by_one <= best * 1.3
