"""What the epochs of a job's runs cost at its present level, and how much that varies between runs.

The epochs of an arm cost the same in each run on a machine of its own, and differ by 40 % where they take seconds on a
shared one. The differences between consecutive runs of an arm show which. A job whose data have grown costs more with
every arm: where two runs in a row differ from their arms by the same factor, all earlier runs are scaled by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

# A smaller change of the log cost of an epoch, or one of fewer standard deviations, is no change of the level.
LEVEL_CHANGE, LEVEL_DEVIATIONS = 0.05, 3.0
# Standard deviation of the log cost of an epoch between runs, before any arm has repeated, and its weight in runs.
PRIOR_SD, PRIOR_WEIGHT = 0.02, 1.0


@dataclass(frozen=True)
class LevelledCosts:
    """Log costs of an epoch in consecutive runs, as they would be at the latest level.

    Attributes:
        logs: The log costs, in the order of the runs.
        noise_sd: Standard deviation between the runs of one arm.
        since: Index of the first run at the latest level; 0 if the level never changed.
    """

    logs: list[float]
    noise_sd: float
    since: int


@dataclass(frozen=True)
class _Deviation:
    """The difference of a run from the mean of its arm, and from the run of it before."""

    run: int
    log_ratio: float
    square: float


def levelled_costs(runs: Sequence[tuple[int, float]]) -> LevelledCosts:
    """The costs at the latest level.

    Args:
        runs: Arm and log cost of an epoch of each run, in their order.

    Example:
        >>> grown = [(0, 1.0), (1, 2.0), (0, 1.3), (1, 2.3)]
        >>> levelled = levelled_costs(grown)
        >>> [round(each, 6) for each in levelled.logs], levelled.since
        ([1.3, 2.3, 1.3, 2.3], 2)
        >>> round(levelled_costs([(0, 1.0), (0, 1.4), (0, 0.9), (0, 1.3)]).noise_sd, 2)
        0.27
    """
    logs: list[float] = []
    of_arm: dict[int, list[int]] = {}
    squares, freedom, since = PRIOR_WEIGHT * PRIOR_SD**2, PRIOR_WEIGHT, 0
    # The latest run, if it is far from its arm's mean: the next one shows whether the level has changed.
    far: list[_Deviation] = []
    for index, (arm, log) in enumerate(runs):
        logs.append(log)
        before = of_arm.setdefault(arm, [])
        if before:
            mean = fmean(logs[each] for each in before)
            found = _Deviation(index, log - mean, (log - logs[before[-1]]) ** 2 / 2)
            bound = max(LEVEL_CHANGE, LEVEL_DEVIATIONS * math.sqrt(squares / freedom))
            is_far = abs(found.log_ratio) > bound
            if is_far and far and abs(found.log_ratio - far[0].log_ratio) <= bound:
                change, since = (found.log_ratio + far[0].log_ratio) / 2, far[0].run
                logs[:since] = [each + change for each in logs[:since]]
                far = []
            else:
                noise = far if is_far else [*far, found]
                far = [found] if is_far else []
                squares += sum(each.square for each in noise)
                freedom += len(noise)
        before.append(index)
    squares += sum(each.square for each in far)
    return LevelledCosts(logs, math.sqrt(squares / (freedom + len(far))), since)
