"""The plans that pictures are drawn of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from wattloop_planner.frequency.plans import Realised


def pictured_plans(realised: Sequence[Realised], count: int | None) -> list[int]:
    """The slowest plan, the one of least energy, the fastest, and others at even distances of their numbers.

    Args:
        realised: What each plan takes, slowest first.
        count: How many at most, 3 or more; None: all.

    Returns:
        Numbers of plans, rising.

    Example:
        >>> pictured_plans([Realised(9 - number, abs(number - 2)) for number in range(9)], 5)
        [0, 2, 3, 5, 8]
    """
    last = len(realised) - 1
    if count is None or count > last:
        return list(range(last + 1))
    least = min(range(last + 1), key=lambda number: realised[number].energy_joules)
    chosen = sorted({0, least, last})
    while len(chosen) < count:
        # Into the middle of the widest gap; of gaps as wide as each other the one of slower plans.
        width, before = max((after - before, -before) for before, after in pairwise(chosen))
        chosen = sorted([*chosen, -before + width // 2])
    return chosen
