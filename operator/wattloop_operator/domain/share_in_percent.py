"""A share that is printed in percent where its target's threshold is a fraction, or the other way round.

Accuracy 85 does not meet 0.9, nor does a word error rate of 0.95 meet 10.
"""

from __future__ import annotations

import re2

from wattloop_operator.api.metric_words import ERROR_RATE_PATTERN, SHARE_PATTERN
from wattloop_operator.api.objective import Direction, Target

IN_PERCENT = "in percent where the threshold is a fraction: write the threshold in percent, such as '90' for '0.9'"
AS_FRACTION = "perhaps as a fraction where the threshold is in percent: write the threshold as what is printed"
# Above 1 by more than a mean of rounded shares.
MAX_SHARE = 1.01
MAX_PERCENT = 100.0


def is_fraction(target: Target) -> bool:
    """Whether a target is met by a value from 0 to 1 and any larger one."""
    return target.direction is Direction.MAXIMIZE and 0 < float(target.threshold) <= 1


def is_share(metric: str) -> bool:
    """Whether a metric's name says that it is a share of what was evaluated.

    Example:
        >>> [is_share(name) for name in ("val_acc", "Top5", "eval_rougeL", "exact_match", "mAP50-95", "reward")]
        [True, True, True, True, True, False]
    """
    return re2.search(SHARE_PATTERN, metric) is not None


def may_be_percent(value: float) -> bool:
    """Whether a share of this value can only be in percent.

    Example:
        >>> [may_be_percent(value) for value in (0.85, 1.0, 85.0, 850.0)]
        [False, False, True, False]
    """
    return MAX_SHARE < value <= MAX_PERCENT


def is_rate_in_percent(target: Target) -> bool:
    """Whether the target of an error rate is in percent, and so met by any fraction.

    Example:
        >>> fields = {"metric": "val_wer", "direction": "Minimize"}
        >>> [is_rate_in_percent(Target.model_validate(fields | {"threshold": each})) for each in ("10", "0.1")]
        [True, False]
    """
    is_rate = target.direction is Direction.MINIMIZE and re2.search(ERROR_RATE_PATTERN, target.metric) is not None
    return is_rate and 1 < float(target.threshold) <= MAX_PERCENT


def may_be_fraction(value: float) -> bool:
    """Whether an error rate of this value may be a fraction: as a percentage it is small.

    Example:
        >>> [may_be_fraction(value) for value in (0.95, 0.0, 12.1)]
        [True, False, False]
    """
    return 0 < value <= 1
