"""Generates many plans close to the frontier, as candidates for the selection (docs/internals/frequency.md)."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from wattloop_planner.frequency.pipeline.planning_problem import Floats, Problem
from wattloop_planner.frequency.pipeline.plans import Plan, realised_plan, undominated
from wattloop_planner.frequency.solver.relaxation import Frontier, Segment
from wattloop_planner.frequency.solver.roundings import MANY_OPERATIONS, Roundings, fastest_plan

# Relaxed schedules that are rounded for each requested plan.
ROUNDED_PER_PLAN = 8
ROUNDED_PER_PLAN_OF_MANY = 3
MAX_CUTS = 32
# Number of operations that local search tries for each plan far from the bound, and for all plans. It tries
# fewer for closer plans, and none for plans within NEAR_GAP. More than TRIALS_PER_OPERATION trials per
# operation, or fewer than MIN_TRIALS in total, gain nothing.
TRIED_OPERATIONS_PER_PLAN = 160_000
TRIED_OPERATIONS = 20_000_000
FAR_GAP = 0.005
NEAR_GAP = 0.0002
TRIALS_PER_OPERATION = 10
MIN_TRIALS = 10


def spread(frontier: Frontier) -> Floats:
    """Position of each breakpoint in the measure in which evenly spaced plans are optimal.

    A deadline between two plans is met by the faster plan, with a loss proportional to the price of time
    times the distance. Over all deadlines, the loss of K plans is minimal if their density is proportional
    to the square root of the price (it minimises the integral of price · spacing / 2 for a fixed integral
    of 1 / spacing).

    Returns:
        Positions, rising from 0, shape (breakpoints,).
    """
    falls = -np.diff(frontier.times_seconds)
    rises = np.diff(frontier.effective_joules)
    return np.concatenate([[0.0], np.cumsum(np.sqrt(np.maximum(falls * rises, 0.0)))])


def places(frontier: Frontier, measure: Floats, plans: Sequence[Plan]) -> Floats:
    """Positions of the plans' times in the measure of `spread`, shape (plans,)."""
    times = np.array([plan.time_seconds for plan in plans])
    return np.asarray(np.interp(-times, -frontier.times_seconds, measure))


def price_at(frontier: Frontier, time_seconds: float) -> float:
    """Price of time in watts: increase of the relaxation's effective energy per second saved."""
    at = int(np.searchsorted(-frontier.times_seconds, -time_seconds))
    at = min(max(at, 1), len(frontier.times_seconds) - 1)
    fall = frontier.times_seconds[at - 1] - frontier.times_seconds[at]
    return float((frontier.effective_joules[at] - frontier.effective_joules[at - 1]) / fall) if fall > 0 else 0.0


def gaps(frontier: Frontier, plans: Sequence[Plan]) -> Floats:
    """Relative excess energy of each plan over the relaxation at the plan's time, shape (plans,)."""
    times = np.array([plan.time_seconds for plan in plans])
    bounds = frontier.bound_joules(times)
    energies = np.array([plan.effective_joules for plan in plans]) + frontier.waiting_power_watts * times
    return np.asarray((energies - bounds) / bounds)


def rounding_spacing(problem: Problem, max_plans: int) -> float:
    """Distance between rounded relaxed schedules, in the measure of `spread`."""
    fastest, slowest = realised_plan(problem, problem.fastest), realised_plan(problem, problem.slowest)
    # By the Cauchy–Schwarz inequality, an upper bound of the measure of the frontier.
    max_length = math.sqrt(
        max(slowest.time_seconds - fastest.time_seconds, 0.0)
        * max(fastest.effective_joules - slowest.effective_joules, 0.0)
    )
    per_plan = ROUNDED_PER_PLAN if problem.graph.operations <= MANY_OPERATIONS else ROUNDED_PER_PLAN_OF_MANY
    return max_length / (per_plan * max_plans)


def rounded_plans(roundings: Roundings, walk: Iterable[Segment]) -> Iterator[Plan]:
    """Round relaxed schedules along a walk of the frontier, at its spacing and at its ends."""
    yield realised_plan(roundings.problem, roundings.problem.slowest)
    segment = None
    for segment in walk:
        # Include both ends of a segment, where most operations are at a corner.
        for number in range(segment.passed + 1 if segment.passed else 0):
            share = number / segment.passed
            time = segment.slow_seconds + share * (segment.fast_seconds - segment.slow_seconds)
            yield from _rounded(roundings, segment, time)
    if segment is not None:
        yield from _rounded(roundings, segment, segment.fast_seconds)
        yield from _fastest(roundings.problem, segment)


def breakpoint_plans(
    roundings: Roundings, walk: Iterable[Segment], max_count: int, spacing: float = math.inf
) -> list[Plan]:
    """Round the relaxed schedule of each breakpoint; of every 2nd, 4th, … if there are more than `max_count`.

    Between breakpoints whose distance in the measure of `spread` exceeds the spacing, more are rounded.
    """
    plans: list[Plan] = []
    stride = 1
    segment = None
    for number, segment in enumerate(walk):
        if number % stride:
            continue
        fall = segment.slow_seconds - segment.fast_seconds
        parts = 1 + math.floor(fall * math.sqrt(segment.price_watts) / spacing) if fall > 0 else 1
        times = (segment.slow_seconds - fall * part / parts for part in range(1, parts + 1))
        plans.extend(_best_rounded(roundings, segment, time) for time in times)
        if len(plans) > max_count:
            plans = plans[::2]
            stride *= 2
    if segment is not None:
        plans.append(_best_rounded(roundings, segment, segment.fast_seconds))
        plans.extend(_fastest(roundings.problem, segment))
    return plans


def _rounded(roundings: Roundings, segment: Segment, time_seconds: float) -> Iterator[Plan]:
    """Plans that take no longer than the relaxed schedules for this time."""
    for durations in segment.durations_at(time_seconds):
        yield from roundings.plans(durations)


def _best_rounded(roundings: Roundings, segment: Segment, time_seconds: float) -> Plan:
    """The plan of lowest cost among `_rounded`, at the segment's price of time."""
    return min(
        _rounded(roundings, segment, time_seconds),
        key=lambda plan: plan.effective_joules + segment.price_watts * plan.time_seconds,
    )


def _fastest(problem: Problem, last: Segment) -> Iterator[Plan]:
    """Plans of exactly the minimum time, from the relaxed schedules at the fast end of the frontier."""
    return (fastest_plan(problem, durations) for durations in last.durations_at(last.fast_seconds))


def split_plans(problem: Problem, frontier: Frontier, plans: list[Plan], max_plans: int) -> Iterator[Plan]:
    """Combine neighbouring plans on the convex hull: one plan until a time, then the other, in both orders.

    Between two relaxed schedules that differ in all microbatches, no rounded plan is close to the frontier,
    but a plan that switches once between both is.
    """
    measure = spread(frontier)
    spacing = measure[-1] / (2 * max_plans)
    best = _lower_hull(undominated(plans))
    distances = np.diff(places(frontier, measure, best))
    choices = np.empty(problem.graph.operations, dtype=np.int16)
    for (slow, fast), distance in zip(pairwise(best), distances.tolist(), strict=True):
        cuts = min(math.ceil(distance / spacing), MAX_CUTS) if spacing > 0 else 0
        if cuts < 2:
            continue
        for first, second in ((slow, fast), (fast, slow)):
            for number in range(1, cuts):
                cut = first.time_seconds * number / cuts
                result = problem.pipeline.split(first.choices, second.choices, cut, choices)
                yield Plan(choices.copy(), *result)


def _lower_hull(plans: list[Plan]) -> list[Plan]:
    hull: list[Plan] = []
    for plan in plans:
        while len(hull) > 1 and not _lies_below(hull[-2], hull[-1], plan):
            hull.pop()
        hull.append(plan)
    return hull


def _lies_below(slow: Plan, middle: Plan, fast: Plan) -> bool:
    """Whether the middle plan takes less energy than the line between the other two."""
    line = (fast.effective_joules - slow.effective_joules) * (slow.time_seconds - middle.time_seconds)
    return (middle.effective_joules - slow.effective_joules) * (slow.time_seconds - fast.time_seconds) < line


def improved_plans(problem: Problem, frontier: Frontier, plans: Sequence[Plan]) -> Iterator[Plan]:
    """The results of local search from plans far from the bound, at the frontier's price of time."""
    operations = problem.graph.operations
    trials_per_plan = min(TRIED_OPERATIONS_PER_PLAN, TRIED_OPERATIONS // len(plans))
    for plan, gap in zip(plans, gaps(frontier, plans).tolist(), strict=True):
        wanted = trials_per_plan * min(gap / FAR_GAP, 1.0) / operations
        trials = min(int(wanted), TRIALS_PER_OPERATION * operations)
        if gap < NEAR_GAP or trials < MIN_TRIALS:
            continue
        choices = plan.choices.copy()
        price = price_at(frontier, plan.time_seconds)
        yield Plan(choices, *problem.pipeline.improve(choices, price, trials, 0))


def plans_to_improve(problem: Problem, max_plans: int) -> int:
    """Number of plans to improve by local search; more than requested if the search of each is short."""
    exhaustive = TRIALS_PER_OPERATION * problem.graph.operations**2
    return max(max_plans, min(TRIED_OPERATIONS_PER_PLAN * max_plans, TRIED_OPERATIONS) // exhaustive)
