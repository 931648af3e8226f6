"""Which point of its frontier a pipeline runs."""

from __future__ import annotations

from wattloop_operator.reconcile.pipeline.state import PipelineFrontier, PlanChoice

FASTEST, DEADLINE, COST = "Fastest", "Deadline", "Cost"
# Sums of the same times in another order differ, and a plan that is longer by this part loses no time.
SAME_TIME = 1e-3


def chosen_point(frontier: PipelineFrontier, choice: PlanChoice) -> int:
    """Index of the point that a pipeline runs while it waits for no straggler.

    Fastest: the plan of least energy that is no slower than the highest clocks. Deadline: the plan of least energy
    within the deadline, or the fastest. Cost: the plan of least cost, η times the energy plus (1 - η) times the
    maximum power times the time.
    """
    points = frontier.points
    if choice.mode == COST:

        def cost(index: int) -> float:
            point = points[index]
            waiting = (1 - choice.energy_weight) * choice.max_power_watts * point.time_seconds
            return choice.energy_weight * point.energy_joules + waiting

        return min(range(len(points)), key=cost)
    if choice.mode == DEADLINE and choice.deadline_seconds is not None:
        longest = choice.deadline_seconds
    else:
        highest = frontier.highest_clocks
        longest = (points[-1].time_seconds if highest is None else highest.time_seconds) * (1 + SAME_TIME)
    in_time = [index for index, point in enumerate(points) if point.time_seconds <= longest]
    if not in_time:
        return fastest_point(frontier)
    return min(in_time, key=lambda index: points[index].energy_joules)


def point_beside_straggler(frontier: PipelineFrontier, chosen: int, straggler_seconds: float) -> int | None:
    """Index of the slowest point that ends before the straggler does; None if it is no slower than the chosen one.

    Waiting until the straggler ends costs energy, so the slowest plan that ends before it takes the least energy.
    """
    points = frontier.points
    in_time = [index for index, point in enumerate(points) if point.time_seconds <= straggler_seconds]
    slowest = max(in_time, key=lambda index: points[index].time_seconds, default=chosen)
    return slowest if points[slowest].time_seconds > points[chosen].time_seconds else None


def fastest_point(frontier: PipelineFrontier) -> int:
    """Index of the point with the shortest time."""
    return min(range(len(frontier.points)), key=lambda index: frontier.points[index].time_seconds)
