"""Feasible arms: an arm that crashed several times in a row is excluded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattloop_planner.bandit.policy import DecisionContext, NoFeasibleArmError
from wattloop_planner.observations import Observation, Outcome

CRASH_BUDGET = 3
# Relative tolerance of the epochs of an exhausted attempt.
ROUNDING = 1e-6


@dataclass(frozen=True)
class FeasibleArms:
    """The feasible and the excluded arms of a job.

    Attributes:
        batch_sizes: The feasible arms, in rising order.
        crashed: Consecutive crashes of each excluded arm.
    """

    batch_sizes: tuple[int, ...]
    crashed: dict[int, int]


def crashes_in_a_row(observations: Iterable[Observation]) -> dict[int, int]:
    """Number of crashes of each arm since its last run without one; crashes of another job do not count."""
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
        NoFeasibleArmError: No arm is left.
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


def tried_arms(context: DecisionContext) -> set[int]:
    """The arms that had their chance to reach the target within the limit of epochs.

    An arm was tried if it reached the target, ran for the maximum number of epochs or was stopped, or
    missed the target twice. A single attempt that was exhausted earlier, under a lower limit, does not
    count.
    """
    tried: set[int] = set()
    missed: set[int] = set()
    for observation in context.observations:
        if observation.from_other_job or observation.other_target or observation.outcome is Outcome.CRASHED:
            continue
        size = observation.batch_size
        early = context.max_epochs is not None and observation.epochs < context.max_epochs * (1 - ROUNDING)
        if observation.outcome is not Outcome.EXHAUSTED or not early or size in missed:
            tried.add(size)
        missed.add(size)
    return tried


def no_feasible_arm_text(crashed: dict[int, int]) -> str:
    """The message for a user when every arm crashed too often."""
    listing = ", ".join(f"{size} ({count} times)" for size, count in crashed.items()) or "there was none"
    return (
        f"every batch size crashed: {listing}; check the logs of the last attempts, then fix the training or offer "
        "other batch sizes (smaller ones if memory ran out)"
    )


def nearest_arm(batch_sizes: tuple[int, ...], wanted: int) -> int:
    """The arm nearest to ``wanted`` on a logarithmic scale; of two equally near arms, the smaller.

    Example:
        >>> nearest_arm((8, 16, 64), 32)
        16
    """
    return min(batch_sizes, key=lambda size: (abs(math.log2(size) - math.log2(wanted)), size))
