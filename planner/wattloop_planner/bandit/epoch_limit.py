"""Effect of a limit of epochs on the cost of reaching the target.

An attempt ends after the limit, whether or not it has reached the target. If the attempts of an arm
reach it with the probability q and cost A on average, a recurrence that retries until it reaches the
target costs A / q.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from wattloop_planner.bandit import _cost_model

Array = NDArray[np.float64]


def log_limit_of(max_epochs: int | None) -> float:
    """Log of the limit of epochs; infinity without one.

    Runs reach the target after whole epochs, so the limit lies half an epoch above the last one.
    """
    return math.inf if max_epochs is None else math.log(max_epochs + 0.5)


def standardised_limit(log_epochs: Array, spread: Array, log_limit: float) -> Array:
    """The limit in standard deviations of an attempt's log epochs above their mean.

    Args:
        log_epochs: Mean of the log epochs of an attempt.
        spread: Standard deviation of them, including the noise between runs.
        log_limit: Log of the limit; infinity without one.
    """
    distance: Array = (log_limit - log_epochs) / spread
    return distance


def log_limit_factor(log_epochs: Array, spread: Array, log_limit: float) -> Array:
    """Log of the factor by which a limit changes the expected cost of reaching the target.

    With X ~ N(m, s²), the log epochs to the target, d = (log K − m) / s and the limit K, it reduces the expected
    epochs of one attempt by the factor A = E[min(e^X, K)] / E[e^X] = Φ(d − s) + K·e^(−m − s²/2)·Φ(−d). The attempt
    reaches the target with the probability q = Φ(d). The factor is A / q. It is 1 for a distant limit. It can be
    below 1 if the epochs are very uncertain, because the limit also ends extremely long attempts.

    Args:
        log_epochs: Mean m of the log epochs of an attempt, shape (arms,).
        spread: Standard deviation s of them, shape (arms,).
        log_limit: Log of the limit.

    Returns:
        Logarithms, shape (arms,).

    Example:
        >>> np.exp(log_limit_factor(np.array([0.0]), np.array([0.1]), 0.0)).round(2).tolist()
        [1.92]
        >>> np.exp(log_limit_factor(np.array([0.0]), np.array([0.1]), 2.0)).round(6).tolist()
        [1.0]
    """
    pairs = zip(log_epochs.tolist(), spread.tolist(), strict=True)
    return np.array([_cost_model.log_limit_factor(mean, sd, log_limit) for mean, sd in pairs])
