"""Gaussian processes over the batch size: prior, conditioning on values, and on bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv
from scipy.special import log_ndtr

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class SmoothPrior:
    """A Gaussian process over x = log2(batch size / centre), in octaves.

    ``h(x) = level + slope·x + curvature·x²/2 + matern(x) + own(x)``. Level, slope and curvature are
    Gaussian, ``matern`` is a Matérn-5/2 process, and ``own`` is independent between arms.

    Attributes:
        level_sd: Standard deviation of the level; large for an unknown level.
        slope: Mean of the slope, per octave.
        slope_sd: Standard deviation of the slope.
        curvature: Mean of the curvature, per octave².
        curvature_sd: Standard deviation of the curvature.
        matern_sd: Standard deviation of the Matérn process.
        matern_octaves: Length scale of the Matérn process.
        own_sd: Standard deviation of ``own``.
    """

    level_sd: float
    slope: float
    slope_sd: float
    curvature: float
    curvature_sd: float
    matern_sd: float
    matern_octaves: float
    own_sd: float


@lru_cache(maxsize=256)
def prior_mean(prior: SmoothPrior, batch_sizes: tuple[int, ...], centre: int) -> Vector:
    """Mean of h at the batch sizes for level 0, shape (arms,)."""
    octaves = np.log2(np.array(batch_sizes, dtype=np.float64) / centre)
    mean: Vector = prior.slope * octaves + prior.curvature * octaves**2 / 2
    mean.setflags(write=False)
    return mean


@lru_cache(maxsize=256)
def prior_covariance(prior: SmoothPrior, batch_sizes: tuple[int, ...], centre: int) -> Matrix:
    """Covariance of h at the batch sizes, shape (arms, arms)."""
    octaves = np.log2(np.array(batch_sizes, dtype=np.float64) / centre)
    bend = octaves**2 / 2
    distance = np.sqrt(5.0) * np.abs(octaves[:, None] - octaves[None, :]) / prior.matern_octaves
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    covariance: Matrix = (
        prior.level_sd**2
        + prior.slope_sd**2 * np.outer(octaves, octaves)
        + prior.curvature_sd**2 * np.outer(bend, bend)
        + prior.matern_sd**2 * matern
        + prior.own_sd**2 * np.eye(len(batch_sizes))
    )
    covariance.setflags(write=False)
    return covariance


def condition(mean: Vector, covariance: Matrix, values: Vector, precisions: Vector) -> tuple[Vector, Matrix]:
    """Posterior mean and covariance of h at all arms, given noisy values at some.

    Args:
        mean: Prior mean, shape (arms,).
        covariance: Prior covariance, shape (arms, arms).
        values: Observed values, shape (arms,); ignored where the precision is 0.
        precisions: Precisions of the values, shape (arms,); 0 where nothing was observed.

    Example:
        >>> import numpy as np
        >>> condition(np.zeros(2), np.eye(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]))[0].round(6).tolist()
        [0.5, 0.0]
    """
    (observed,) = precisions.nonzero()
    if not observed.size:
        return mean, covariance
    cross = covariance[:, observed]
    inner = cross[observed]
    inner.flat[:: len(observed) + 1] += 1 / precisions[observed]
    _, gains, failed = dposv(inner, cross.T)
    if failed:
        gains = np.linalg.solve(inner, cross.T)
    return mean + (values[observed] - mean[observed]) @ gains, covariance - cross @ gains


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
    log_beyond = float(log_ndtr(z))
    ratio = math.exp(-z * z / 2 - log_beyond) / math.sqrt(2 * math.pi)
    shift = variance * ratio / spread
    truncated = variance - variance**2 * ratio * (z + ratio) / spread**2
    regular = (1 - outlier_probability) * math.exp(log_beyond)
    weight = regular / (outlier_probability + regular) if outlier_probability else 1.0
    return mean + weight * shift, weight * truncated + (1 - weight) * (variance + weight * shift**2)
