"""Which of many plans to keep: spread so that the loss between neighbours is least, close to the bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattloop_planner.frequency.plans import Plan, undominated
from wattloop_planner.frequency.portfolio import gaps, places, spread
from wattloop_planner.frequency.relaxation import Floats, Frontier

# A plan at the edge of its place counts as this much further from the bound than one in the middle.
EDGE_PENALTY = 0.0002


def spread_plans(frontier: Frontier, plans: Sequence[Plan], count: int) -> list[Plan]:
    """At most ``count`` plans: the fastest, the one of least energy, the slowest, and the best of each place between.

    Args:
        frontier: The relaxation's.
        plans: To choose from.
        count: At least 3.

    Returns:
        Slowest first, none dominated.
    """
    pool = undominated(plans)
    if len(pool) <= count:
        return pool
    measure = spread(frontier)
    positions = places(frontier, measure, pool)
    step = measure[-1] / (count - 1)
    slots = np.clip(np.round(positions / step), 0, count - 1).astype(int)
    scores = gaps(frontier, pool)
    scores += EDGE_PENALTY * (2 * np.abs(positions / step - slots)) ** 2
    chosen: dict[int, int] = {}
    for index, slot in enumerate(slots.tolist()):
        if slot not in chosen or scores[index] < scores[chosen[slot]]:
            chosen[slot] = index
    least = min(range(len(pool)), key=lambda index: _energy(frontier, pool[index]))
    chosen[int(slots[least])] = least
    kept = {0, least, len(pool) - 1}
    kept |= {index for slot, index in chosen.items() if slots[0] < slot < slots[-1]}
    _thin(kept, {0, least, len(pool) - 1}, positions, count)
    _fill(kept, positions, count)
    return [pool[index] for index in sorted(kept)]


def _energy(frontier: Frontier, plan: Plan) -> float:
    return plan.effective_joules + frontier.waiting_power_watts * plan.time_seconds


def _thin(kept: set[int], needed: set[int], positions: Floats, count: int) -> None:
    """Leave out the plans whose neighbours are nearest to each other, until there are few enough."""
    while len(kept) > count:
        order = sorted(kept)
        inner = [at for at in range(1, len(order) - 1) if order[at] not in needed]
        nearest = min(inner, key=lambda at: positions[order[at + 1]] - positions[order[at - 1]])
        kept.remove(order[nearest])


def _fill(kept: set[int], positions: Floats, count: int) -> None:
    """Add the plans that are furthest from those kept, until there are enough; positions rise."""
    chosen = positions[sorted(kept)]
    after = np.clip(np.searchsorted(chosen, positions), 1, len(chosen) - 1)
    distances = np.minimum(np.abs(positions - chosen[after - 1]), np.abs(chosen[after] - positions))
    distances[sorted(kept)] = -1.0
    while len(kept) < count:
        furthest = int(np.argmax(distances))
        kept.add(furthest)
        distances = np.minimum(distances, np.abs(positions - positions[furthest]))
        distances[furthest] = -1.0
