"""A share that is printed in percent where its target's threshold is a fraction: accuracy 85 does not meet 0.9."""

from __future__ import annotations

import re2

from wattloop_operator.api.metric_words import SHARE_PATTERN
from wattloop_operator.api.objective import Direction, Target

IN_PERCENT = "in percent where the threshold is a fraction: write the threshold in percent, such as '90' for '0.9'"
# Above 1 by more than a mean of rounded shares.
MAX_SHARE = 1.01
MAX_PERCENT = 100.0


def is_fraction(target: Target) -> bool:
    """Whether a target is met by a value from 0 to 1 and any larger one."""
    return target.direction is Direction.MAXIMIZE and 0 < float(target.threshold) <= 1


def is_share(metric: str) -> bool:
    """Whether a metric's name says that it is a share of what was evaluated.

    Example:
        >>> [is_share(name) for name in ("val_acc", "Top1", "reward")]
        [True, True, False]
    """
    return re2.search(SHARE_PATTERN, metric) is not None


def may_be_percent(value: float) -> bool:
    """Whether a share of this value can only be in percent.

    Example:
        >>> [may_be_percent(value) for value in (0.85, 1.0, 85.0, 850.0)]
        [False, False, True, False]
    """
    return MAX_SHARE < value <= MAX_PERCENT
