"""Gaussian processes over the arms: conditioning on values, and on bounds."""

import math

import numpy as np
from numpy.typing import NDArray

from wattloop_planner.bandit import _cost_model

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]
Matrix = NDArray[np.float64]


def conditioned(mean: Vector, covariance: Matrix, values: Vector, precisions: Vector) -> tuple[Vector, Matrix]:
    """Posterior mean and covariance of h at all arms, given noisy values at some.

    Args:
        mean: Prior mean, shape (arms,).
        covariance: Prior covariance, shape (arms, arms).
        values: Observed values, shape (arms,); ignored where the precision is 0.
        precisions: Precisions of the values, shape (arms,); 0 where nothing was observed.

    Example:
        >>> import numpy as np
        >>> conditioned(np.zeros(2), np.eye(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]))[0].round(6).tolist()
        [0.5, 0.0]
    """
    return condition_mixture(mean[None], covariance, values, precisions)


def condition_mixture(means: Matrix, covariance: Matrix, values: Vector, precisions: Vector) -> tuple[Vector, Matrix]:
    """The mean and covariance of the posterior of a mixture of equally likely Gaussian priors of h.

    The components have one covariance. Each is weighted by the likelihood of the values under it.

    Args:
        means: Prior mean of each component, shape (components, arms).
        covariance: Prior covariance of each, shape (arms, arms).
        values: Observed values, shape (arms,); ignored where the precision is 0.
        precisions: Precisions of the values, shape (arms,); 0 where nothing was observed.

    Example:
        >>> import numpy as np
        >>> means = np.array([[0.0, 0.0], [8.0, 8.0]])
        >>> mean, _ = condition_mixture(means, np.eye(2), np.array([8.0, 0.0]), np.array([1.0, 0.0]))
        >>> mean.round(3).tolist()
        [8.0, 8.0]
    """
    mean, posterior = np.empty(len(values)), np.empty((len(values), len(values)))
    if _cost_model.condition_mixture(means, covariance, values, precisions, mean, posterior):
        return mean, posterior
    return condition_by_elimination(means, covariance, values, precisions)


def condition_by_elimination(
    means: Matrix, covariance: Matrix, values: Vector, precisions: Vector
) -> tuple[Vector, Matrix]:
    """The same for a covariance that is not positive definite because of rounding."""
    (observed,) = precisions.nonzero()
    cross = covariance[:, observed]
    inner = cross[observed] + np.diag(1 / precisions[observed])
    residuals = values[observed] - means[:, observed]
    gains = np.linalg.solve(inner, cross.T)
    log_weights = -(residuals * np.linalg.solve(inner, residuals.T).T).sum(axis=1) / 2
    means, covariance = means + residuals @ gains, covariance - cross @ gains
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ means
    apart = means - mean
    return mean, covariance + (apart.T * weights) @ apart


def moments_beyond(
    mean: float, variance: float, noise_sd: float, bound: float, outlier_probability: float
) -> tuple[float, float]:
    """Posterior mean and variance of a Gaussian quantity, given that a run's value exceeds a bound.

    The quantity has the prior N(m, v), and a run's value is distributed as N(m, v + noise²). The value
    exceeds the bound with the probability Φ(z), z = (m − bound) / √(v + noise²). An outlier exceeds the
    bound in any case. With the outlier probability p, the run is no outlier with the probability

        w = (1 − p)·Φ(z) / (p + (1 − p)·Φ(z))

    The posterior is the mixture of the truncated prior, with the weight w, and the prior. The returned
    moments of this mixture are exact (truncation: Rasmussen and Williams 2006, section 3.9). The less
    likely a bound is a priori, the less it changes the posterior.

    Args:
        mean: Prior mean.
        variance: Prior variance.
        noise_sd: Standard deviation between runs.
        bound: The value that the run exceeds.
        outlier_probability: Probability that a run is an outlier, 0 to 1.

    Returns:
        Mean and variance. The variance can exceed the prior variance, because the run may be an outlier.

    Example:
        >>> [round(x, 4) for x in moments_beyond(0.0, 1.0, 0.0, 0.0, outlier_probability=0.0)]
        [0.7979, 0.3634]
        >>> [round(x, 4) for x in moments_beyond(0.0, 1.0, 0.0, 0.0, outlier_probability=1.0)]
        [0.0, 1.0]
    """
    spread = math.sqrt(variance + noise_sd**2)
    z = (mean - bound) / spread
    log_beyond = _cost_model.log_normal_cdf(z)
    ratio = math.exp(-z * z / 2 - log_beyond) / math.sqrt(2 * math.pi)
    shift = variance * ratio / spread
    truncated = variance - variance**2 * ratio * (z + ratio) / spread**2
    regular = (1 - outlier_probability) * math.exp(log_beyond)
    weight = regular / (outlier_probability + regular) if outlier_probability else 1.0
    return mean + weight * shift, weight * truncated + (1 - weight) * (variance + weight * shift**2)
