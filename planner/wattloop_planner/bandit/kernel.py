"""Gaussian process priors over the arms of a configuration space."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.coordinates import octaves_from_default
from wattloop_planner.bandit.gaussian_process import Matrix, Vector


@dataclass(frozen=True)
class SmoothPrior:
    """A Gaussian process over x = log2(batch size / default), in octaves.

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
def prior_mean(prior: SmoothPrior, space: ConfigurationSpace) -> Vector:
    """Mean of h at the arms for level 0, shape (arms,)."""
    sizes = octaves_from_default(space)
    mean: Vector = prior.slope * sizes + prior.curvature * sizes**2 / 2
    mean.setflags(write=False)
    return mean


@lru_cache(maxsize=256)
def prior_covariance(prior: SmoothPrior, space: ConfigurationSpace) -> Matrix:
    """Covariance of h at the arms, shape (arms, arms)."""
    sizes = octaves_from_default(space)
    bend = sizes**2 / 2
    distance = np.sqrt(5.0) * np.abs(sizes[:, None] - sizes[None, :]) / prior.matern_octaves
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    covariance: Matrix = (
        prior.level_sd**2
        + prior.slope_sd**2 * np.outer(sizes, sizes)
        + prior.curvature_sd**2 * np.outer(bend, bend)
        + prior.matern_sd**2 * matern
        + prior.own_sd**2 * np.eye(len(space))
    )
    covariance.setflags(write=False)
    return covariance
