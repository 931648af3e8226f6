"""A Gaussian process over the batch sizes of a job, in octaves: prior, and posterior given what each arm showed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class SmoothPrior:
    """Standard deviations of the parts of a smooth function of log2(batch size).

    Attributes:
        level: Of the level.
        trend: Of the slope, per octave.
        wiggle: Of a Matérn-5/2 deviation from the straight line.
        length_octaves: Its length scale.
        nugget: Of what each arm has for itself.
    """

    level: float
    trend: float
    wiggle: float
    length_octaves: float
    nugget: float


@lru_cache(maxsize=256)
def prior_covariance(prior: SmoothPrior, batch_sizes: tuple[int, ...], centre: int) -> Matrix:
    """Covariance of the function's values at these batch sizes, the level being that at ``centre``."""
    octaves = np.log2(np.array(batch_sizes, dtype=np.float64) / centre)
    distance = np.sqrt(5.0) * np.abs(octaves[:, None] - octaves[None, :]) / prior.length_octaves
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    covariance: Matrix = (
        prior.level**2
        + prior.trend**2 * np.outer(octaves, octaves)
        + prior.wiggle**2 * matern
        + prior.nugget**2 * np.eye(len(batch_sizes))
    )
    covariance.setflags(write=False)
    return covariance


def posterior(covariance: Matrix, mean: Vector, values: Vector, precisions: Vector) -> tuple[Vector, Matrix]:
    """Posterior mean and covariance of all arms.

    Args:
        covariance: Prior covariance, (arms, arms).
        mean: Prior mean, (arms,).
        values: What each arm showed, (arms,); ignored where its precision is 0.
        precisions: Precision of that, (arms,); 0 where it showed nothing.
    """
    seen = np.flatnonzero(precisions)
    if not len(seen):
        return mean, covariance
    cross = covariance[:, seen]
    inner = cross[seen] + np.diag(1 / precisions[seen])
    weights = np.linalg.solve(inner, cross.T)
    return mean + (values[seen] - mean[seen]) @ weights, covariance - cross @ weights
