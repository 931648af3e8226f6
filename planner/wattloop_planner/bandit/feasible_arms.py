"""Which batch sizes can still be run: an arm that crashes again and again is out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattloop_planner.bandit.policy import NoFeasibleArmError
from wattloop_planner.observations import Observation, Outcome

CRASH_BUDGET = 3


@dataclass(frozen=True)
class FeasibleArms:
    """The arms of a job after its crashes.

    Attributes:
        batch_sizes: Those that can be run, rising.
        crashed: Crashes in a row of each arm that is out.
    """

    batch_sizes: tuple[int, ...]
    crashed: dict[int, int]


def crashes_in_a_row(observations: Iterable[Observation]) -> dict[int, int]:
    """How often each arm crashed since it last ran without crashing; crashes of another job count for nothing."""
    counts: dict[int, int] = {}
    for observation in observations:
        if observation.from_other_job:
            continue
        if observation.outcome is Outcome.CRASHED:
            counts[observation.batch_size] = counts.get(observation.batch_size, 0) + 1
        else:
            counts.pop(observation.batch_size, None)
    return counts


def feasible_arms(batch_sizes: tuple[int, ...], observations: Iterable[Observation], crash_budget: int) -> FeasibleArms:
    """The arms that did not crash ``crash_budget`` times in a row.

    Raises:
        NoFeasibleArmError: None is left.
    """
    crashed = {
        size: count
        for size, count in sorted(crashes_in_a_row(observations).items())
        if count >= crash_budget and size in batch_sizes
    }
    left = tuple(size for size in batch_sizes if size not in crashed)
    if not left:
        raise NoFeasibleArmError(no_feasible_arm_text(crashed))
    return FeasibleArms(left, crashed)


def no_feasible_arm_text(crashed: dict[int, int]) -> str:
    """Says that every arm crashed too often, and the way out."""
    listing = ", ".join(f"{size} ({count} times)" for size, count in crashed.items()) or "there was none"
    return (
        f"every batch size crashed: {listing}; look at the logs of the last attempts, mend the training or offer other "
        "batch sizes (smaller ones where memory ran out)"
    )


def nearest_arm(batch_sizes: tuple[int, ...], wanted: int) -> int:
    """The arm nearest to ``wanted`` on a logarithmic scale, the smaller of two: the default itself where it is left.

    Example:
        >>> nearest_arm((8, 16, 64), 32)
        16
    """
    return min(batch_sizes, key=lambda size: (abs(math.log2(size) - math.log2(wanted)), size))
