"""Effect of a limit of epochs on the cost of reaching the target.

An attempt ends after the limit, whether or not it has reached the target. If the attempts of an arm
reach it with the probability q and cost A on average, a recurrence that retries until it reaches the
target costs A / q.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

Array = NDArray[np.float64]

MAX_LOG = 60.0
# Below the logarithm of the smallest positive float.
MIN_POSITIVE = 1e-300


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


def log_attempt_factor(log_epochs: Array, spread: Array, log_limit: float) -> Array:
    """Log of the factor by which a limit reduces the expected epochs of one attempt.

    With X ~ N(m, s²), the log epochs to the target, d = (log K − m) / s and the limit K, the factor is
    E[min(e^X, K)] / E[e^X] = Φ(d − s) + K·e^(−m − s²/2)·Φ(−d).

    Args:
        log_epochs: Mean m, any shape.
        spread: Standard deviation s, of the same shape.
        log_limit: Log of the limit.

    Returns:
        Logarithms, of the same shape, at most 0.

    Example:
        >>> np.exp(log_attempt_factor(np.array([0.0, 0.0]), np.array([0.1, 0.1]), 0.0)).round(2).tolist()
        [0.96, 0.96]
    """
    distance = standardised_limit(log_epochs, spread, log_limit)
    exhausted = np.exp(np.minimum(log_limit - log_epochs - spread**2 / 2, MAX_LOG)) * ndtr(-distance)
    factor: Array = np.log(np.maximum(ndtr(distance - spread) + exhausted, MIN_POSITIVE))
    return factor


def log_limit_factor(log_epochs: Array, spread: Array, log_limit: float) -> Array:
    """Log of the factor by which a limit changes the expected cost of reaching the target.

    The factor is A / q over the expected cost without a limit. It is 1 for a distant limit. It can be
    below 1 if the epochs are very uncertain, because the limit also ends extremely long attempts.

    Args:
        log_epochs: Mean of the log epochs of an attempt, any shape.
        spread: Standard deviation of them, of the same shape.
        log_limit: Log of the limit.

    Returns:
        Logarithms, of the same shape.

    Example:
        >>> np.exp(log_limit_factor(np.array([0.0]), np.array([0.1]), 0.0)).round(2).tolist()
        [1.92]
        >>> np.exp(log_limit_factor(np.array([0.0]), np.array([0.1]), 2.0)).round(6).tolist()
        [1.0]
    """
    factor: Array = log_attempt_factor(log_epochs, spread, log_limit) - log_ndtr(
        standardised_limit(log_epochs, spread, log_limit)
    )
    return factor
