"""What a run that did not reach the target says: the epochs to it are more than those run, unless it went astray."""

from __future__ import annotations

import math

from scipy.special import log_ndtr


def moments_beyond(
    mean: float, variance: float, noise_sd: float, bound: float, outlier_probability: float
) -> tuple[float, float]:
    """Mean and variance of a Gaussian belief after a run that ended beyond a bound.

    Of a belief N(m, v) and a run's value N(m, v + noise²), that the value lies beyond the bound has the probability
    Φ(z), z = (m − bound) / √(v + noise²). A run that goes astray lies there whatever is true, so the bound is believed
    with the probability

        w = (1 − stray)·Φ(z) / (stray + (1 − stray)·Φ(z))

    and what is left is the mixture of the truncated belief and the one before, of which these are the exact moments
    (truncated ones: Rasmussen and Williams 2006, section 3.9). The less a bound was to be expected, the less it moves.

    Args:
        mean: Of the belief.
        variance: Of the belief.
        noise_sd: Spread between runs.
        bound: What the run's value exceeds.
        outlier_probability: Probability that a run goes astray, 0 to 1.

    Returns:
        Mean and variance. The variance may be larger than before: whether the run was astray is one more thing unknown.

    Example:
        >>> [round(x, 4) for x in moments_beyond(0.0, 1.0, 0.0, 0.0, outlier_probability=0.0)]
        [0.7979, 0.3634]
        >>> [round(x, 4) for x in moments_beyond(0.0, 1.0, 0.0, 0.0, outlier_probability=1.0)]
        [0.0, 1.0]
    """
    spread = math.sqrt(variance + noise_sd**2)
    z = (mean - bound) / spread
    log_beyond = float(log_ndtr(z))
    ratio = math.exp(-z * z / 2 - log_beyond) / math.sqrt(2 * math.pi)
    shift = variance * ratio / spread
    truncated = variance - variance**2 * ratio * (z + ratio) / spread**2
    kept = (1 - outlier_probability) * math.exp(log_beyond)
    believed = kept / (outlier_probability + kept) if outlier_probability else 1.0
    return mean + believed * shift, believed * truncated + (1 - believed) * (variance + believed * shift**2)
