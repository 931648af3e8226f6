"""Which of many plans to keep: those that lose least at the deadlines that fall between them (docs/frequency.md)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from wattloop_planner.frequency.pipeline.plans import Plan, undominated
from wattloop_planner.frequency.pipeline.problem import Floats
from wattloop_planner.frequency.solver.relaxation import Frontier

# The best choice is made among this many times the plans wanted; before, the least useful are left out one by one.
CANDIDATES_PER_PLAN = 4
# Beyond, the best choice takes too long: the time grows with the third power.
MAX_CHOSEN_BEST = 64


def spread_plans(frontier: Frontier, plans: Sequence[Plan], count: int) -> list[Plan]:
    """At most ``count`` plans: the fastest, the one of least energy, the slowest, and the most useful between.

    A deadline between two plans is met by the faster one. What that takes beyond the relaxation is its loss. The plans
    are those of least mean square loss over all deadlines from the fastest plan's time to the slowest one's, plus least
    mean square loss at the plans' own times: a plan that is further from the bound than its neighbours is passed over.

    Args:
        frontier: The relaxation's.
        plans: To choose from.
        count: At least 3.

    Returns:
        Slowest first, none dominated.
    """
    pool = undominated(plans)[::-1]
    losses = _Losses(frontier, pool, count)
    if count > MAX_CHOSEN_BEST:
        kept = _thinned(losses, count, losses.own.tolist())
    else:
        # Where the best choice follows, a plan far from the bound stays until it is compared with all others.
        kept = _thinned(losses, CANDIDATES_PER_PLAN * count, [0.0] * len(pool))
    if len(kept) > count:
        kept = [kept[place] for place in _best(_Losses(frontier, [pool[index] for index in kept], count), count)]
    return [pool[index] for index in kept[::-1]]


class _Losses:
    """What it costs to meet deadlines by plans; the plans are in order of rising time.

    Attributes:
        count: Of the plans.
        least: Place of the plan of least energy.
        own: Square loss of each plan at its own time, times its share of the deadlines' range.
    """

    def __init__(self, frontier: Frontier, plans: Sequence[Plan], wanted: int) -> None:
        self.count = len(plans)
        self.times = np.array([plan.time_seconds for plan in plans])
        effective = np.array([plan.effective_joules for plan in plans])
        self.least = int(np.argmin(effective + frontier.waiting_power_watts * self.times))
        # Beyond the least there is, so that the squares keep their digits.
        self.costs = effective - frontier.effective_joules[0]
        # Integrals of the bound and of its square, from the fastest plan's time to each plan's.
        corners = frontier.times_seconds[::-1]
        # With the index too, since NumPy imports its masked arrays to return the distinct values alone.
        grid, _ = np.unique(np.concatenate([corners[corners > self.times[0]], self.times]), return_index=True)
        bounds_at = np.interp(grid, corners, frontier.effective_joules[::-1] - frontier.effective_joules[0])
        widths, before, after = np.diff(grid), bounds_at[:-1], bounds_at[1:]
        places = np.searchsorted(grid, self.times)
        self.own = (self.costs - bounds_at[places]) ** 2 * (self.times[-1] - self.times[0]) / wanted
        self.bounds = _running_sum(widths * (before + after) / 2)[places]
        self.squares = _running_sum(widths * (before**2 + before * after + after**2) / 3)[places]

    def between(self) -> Floats:
        """The square loss of each plan when it is followed by each other one, shape (plans, plans)."""
        # The integral of (cost - bound)² from the one plan's time to the other's.
        costs = self.costs[:, None]
        widths, bounds, squares = (values - values[:, None] for values in (self.times, self.bounds, self.squares))
        return np.asarray(costs**2 * widths - 2 * costs * bounds + squares + self.own[:, None])


def _running_sum(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def _thinned(losses: _Losses, count: int, own: list[float]) -> list[int]:
    """Leave out the plan whose absence costs least, one after another, until there are few enough.

    Args:
        losses: Of the plans.
        count: How many are kept.
        own: What each plan costs by being there.
    """
    times: list[float] = losses.times.tolist()
    costs: list[float] = losses.costs.tolist()
    bounds: list[float] = losses.bounds.tolist()
    last = losses.count - 1
    before, after = list(range(-1, last)), list(range(1, last + 2))

    def rise(plan: int) -> float:
        """By how much the square loss rises without this plan: the one before it meets its deadlines."""
        faster, slower = before[plan], after[plan]
        width, bound = times[slower] - times[plan], bounds[slower] - bounds[plan]
        return (costs[faster] - costs[plan]) * ((costs[faster] + costs[plan]) * width - 2 * bound) - own[plan]

    needed = {0, losses.least, last}
    rises = {plan: rise(plan) for plan in range(last + 1) if plan not in needed}
    heap = [(value, plan) for plan, value in rises.items()]
    heapq.heapify(heap)
    while len(rises) + len(needed) > count and heap:
        value, plan = heapq.heappop(heap)
        if rises.get(plan) != value:
            continue
        del rises[plan]
        faster, slower = before[plan], after[plan]
        after[faster], before[slower] = slower, faster
        for neighbour in (faster, slower):
            if neighbour in rises:
                rises[neighbour] = rise(neighbour)
                heapq.heappush(heap, (rises[neighbour], neighbour))
    return sorted(needed | set(rises))


def _best(losses: _Losses, count: int) -> list[int]:
    """So many plans of least square loss in all, by dynamic programming over the next plan and how many follow."""
    costs = losses.between()
    costs[np.tril_indices(losses.count)] = np.inf
    costs[: losses.least, losses.least + 1 :] = np.inf
    last = losses.count - 1
    # Of least loss from each plan on, when so many steps are left.
    least = np.where(np.arange(losses.count) == last, 0.0, np.inf)
    followers = []
    for _ in range(count - 1):
        totals = costs + least
        followers.append(np.argmin(totals, axis=1))
        least = totals[np.arange(losses.count), followers[-1]]
    chosen = [0]
    for following in reversed(followers):
        chosen.append(int(following[chosen[-1]]))
    return chosen
