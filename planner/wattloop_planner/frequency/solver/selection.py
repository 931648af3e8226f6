"""Selects the plans with the smallest loss at deadlines between them (docs/internals/frequency.md)."""

import heapq
from collections.abc import Sequence

import numpy as np

from wattloop_planner.frequency.pipeline.planning_problem import Floats
from wattloop_planner.frequency.pipeline.plans import Plan, undominated
from wattloop_planner.frequency.solver.relaxation import Frontier

# The optimal selection considers this many candidates per plan; the others are removed greedily before.
CANDIDATES_PER_PLAN = 4
# Above this number of plans, the optimal selection takes too long: its time grows with the third power.
MAX_OPTIMAL = 64


def spread_plans(frontier: Frontier, plans: Sequence[Plan], count: int) -> list[Plan]:
    """Select at most ``count`` plans, including the fastest, the slowest and the one of minimum energy.

    A deadline between two plans is met by the faster plan; its excess energy over the relaxation is the
    loss. The selection minimises the mean square loss over all deadlines between the fastest and the
    slowest plan, plus the mean square loss at the plans' own times. The second term excludes plans that
    are further from the bound than their neighbours.

    Returns:
        The selected plans, slowest first, none dominated.
    """
    pool = undominated(plans)[::-1]
    losses = _Losses(frontier, pool, count)
    if count > MAX_OPTIMAL:
        selected = _thinned(losses, count, losses.own.tolist())
    else:
        # The own loss is 0 here: the optimal selection, not the greedy one, excludes plans far from the bound.
        selected = _thinned(losses, CANDIDATES_PER_PLAN * count, [0.0] * len(pool))
    if len(selected) > count:
        candidates = _Losses(frontier, [pool[index] for index in selected], count)
        selected = [selected[index] for index in _optimal(candidates, count)]
    return [pool[index] for index in selected[::-1]]


class _Losses:
    """Square losses of plans at deadlines; the plans are in order of rising time.

    Attributes:
        cheapest: Index of the plan of minimum energy.
        own: Square loss of each plan at its own time, times its share of the range of deadlines.
    """

    def __init__(self, frontier: Frontier, plans: Sequence[Plan], wanted: int) -> None:
        self.count = len(plans)
        self.times = np.array([plan.time_seconds for plan in plans])
        effective = np.array([plan.effective_joules for plan in plans])
        self.cheapest = int(np.argmin(effective + frontier.waiting_power_watts * self.times))
        # Relative to the minimum, so that the squares keep their precision.
        self.costs = effective - frontier.effective_joules[0]
        # Integrals of the bound and of its square, from the fastest plan's time to each plan's.
        corners = frontier.times_seconds[::-1]
        # return_index=True, because np.unique imports numpy.ma if only the values are requested.
        grid, _ = np.unique(np.concatenate([corners[corners > self.times[0]], self.times]), return_index=True)
        bounds_at = np.interp(grid, corners, frontier.effective_joules[::-1] - frontier.effective_joules[0])
        widths, before, after = np.diff(grid), bounds_at[:-1], bounds_at[1:]
        places = np.searchsorted(grid, self.times)
        self.own = (self.costs - bounds_at[places]) ** 2 * (self.times[-1] - self.times[0]) / wanted
        self.bounds = _running_sum(widths * (before + after) / 2)[places]
        self.squares = _running_sum(widths * (before**2 + before * after + after**2) / 3)[places]

    def between(self) -> Floats:
        """The square loss of each plan if each other plan is the next slower one, shape (plans, plans)."""
        # The integral of (cost - bound)² between both plans' times.
        costs = self.costs[:, None]
        widths, bounds, squares = (values - values[:, None] for values in (self.times, self.bounds, self.squares))
        return np.asarray(costs**2 * widths - 2 * costs * bounds + squares + self.own[:, None])


def _running_sum(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def _thinned(losses: _Losses, count: int, own: list[float]) -> list[int]:
    """Remove the plan whose removal costs least, repeatedly, until `count` plans remain.

    Returns:
        Indices of the remaining plans, rising.
    """
    times: list[float] = losses.times.tolist()
    costs: list[float] = losses.costs.tolist()
    bounds: list[float] = losses.bounds.tolist()
    last = losses.count - 1
    before, after = list(range(-1, last)), list(range(1, last + 2))

    def rise(plan: int) -> float:
        """Increase of the square loss if the next faster plan meets this plan's deadlines."""
        faster, slower = before[plan], after[plan]
        width, bound = times[slower] - times[plan], bounds[slower] - bounds[plan]
        return (costs[faster] - costs[plan]) * ((costs[faster] + costs[plan]) * width - 2 * bound) - own[plan]

    required = {0, losses.cheapest, last}
    rises = {plan: rise(plan) for plan in range(last + 1) if plan not in required}
    heap = [(value, plan) for plan, value in rises.items()]
    heapq.heapify(heap)
    while len(rises) + len(required) > count and heap:
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
    return sorted(required | set(rises))


def _optimal(losses: _Losses, count: int) -> list[int]:
    """Indices of `count` plans of minimum total square loss, by dynamic programming over the next plan."""
    costs = losses.between()
    costs[np.tril_indices(losses.count)] = np.inf
    costs[: losses.cheapest, losses.cheapest + 1 :] = np.inf
    last = losses.count - 1
    # Minimum loss from each plan on with the remaining number of steps.
    min_loss = np.where(np.arange(losses.count) == last, 0.0, np.inf)
    followers = []
    for _ in range(count - 1):
        totals = costs + min_loss
        followers.append(np.argmin(totals, axis=1))
        min_loss = totals[np.arange(losses.count), followers[-1]]
    chosen = [0]
    for following in reversed(followers):
        chosen.append(int(following[chosen[-1]]))
    return chosen
