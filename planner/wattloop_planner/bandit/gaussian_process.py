"""Smooth functions of the batch size: what is expected of one before it is seen, and what is left to know after."""

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

    ``h(x) = level + slope·x + curvature·x²/2 + wiggle(x) + own(x)``: the first three are random numbers with these
    means and standard deviations, the fourth a Matérn-5/2 process, the last independent between arms.

    Attributes:
        level_sd: Of the level; large, for a level nobody knows.
        slope: Mean of the slope, per octave.
        slope_sd: Of the slope.
        curvature: Mean of the curvature, per octave².
        curvature_sd: Of the curvature.
        wiggle_sd: Of the Matérn process.
        wiggle_octaves: Its length scale.
        own_sd: Of what an arm has for itself.
    """

    level_sd: float
    slope: float
    slope_sd: float
    curvature: float
    curvature_sd: float
    wiggle_sd: float
    wiggle_octaves: float
    own_sd: float


@lru_cache(maxsize=256)
def prior_mean(prior: SmoothPrior, batch_sizes: tuple[int, ...], centre: int) -> Vector:
    """Mean of h at these batch sizes, (arms,), its level taken as 0."""
    octaves = np.log2(np.array(batch_sizes, dtype=np.float64) / centre)
    mean: Vector = prior.slope * octaves + prior.curvature * octaves**2 / 2
    mean.setflags(write=False)
    return mean


@lru_cache(maxsize=256)
def prior_covariance(prior: SmoothPrior, batch_sizes: tuple[int, ...], centre: int) -> Matrix:
    """Covariance of h at these batch sizes, (arms, arms)."""
    octaves = np.log2(np.array(batch_sizes, dtype=np.float64) / centre)
    bend = octaves**2 / 2
    distance = np.sqrt(5.0) * np.abs(octaves[:, None] - octaves[None, :]) / prior.wiggle_octaves
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    covariance: Matrix = (
        prior.level_sd**2
        + prior.slope_sd**2 * np.outer(octaves, octaves)
        + prior.curvature_sd**2 * np.outer(bend, bend)
        + prior.wiggle_sd**2 * matern
        + prior.own_sd**2 * np.eye(len(batch_sizes))
    )
    covariance.setflags(write=False)
    return covariance


def condition(mean: Vector, covariance: Matrix, values: Vector, precisions: Vector) -> tuple[Vector, Matrix]:
    """Mean and covariance of h at all arms, given a noisy value at some.

    Args:
        mean: Prior mean, (arms,).
        covariance: Prior covariance, (arms, arms).
        values: What each arm showed, (arms,); ignored where its precision is 0.
        precisions: Precision of that, (arms,); 0 where it showed nothing.

    Example:
        >>> import numpy as np
        >>> condition(np.zeros(2), np.eye(2), np.array([1.0, 0.0]), np.array([1.0, 0.0]))[0].round(6).tolist()
        [0.5, 0.0]
    """
    (seen,) = precisions.nonzero()
    if not seen.size:
        return mean, covariance
    cross = covariance[:, seen]
    inner = cross[seen]
    inner.flat[:: len(seen) + 1] += 1 / precisions[seen]
    _, gains, failed = dposv(inner, cross.T)
    if failed:
        gains = np.linalg.solve(inner, cross.T)
    return mean + (values[seen] - mean[seen]) @ gains, covariance - cross @ gains


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
