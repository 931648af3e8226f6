"""Gaussian process priors over the arms of a configuration space."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wattloop_planner.bandit.configuration import ConfigurationSpace, Parameter, Scale
from wattloop_planner.bandit.coordinates import octaves_from_default, parameter_coordinates
from wattloop_planner.bandit.epoch_shapes import EpochShapes
from wattloop_planner.bandit.gaussian_process import Matrix, Vector


@dataclass(frozen=True)
class ParameterPrior:
    """The effect of a further parameter on h, over its coordinate u, which is 0 for the default.

    A number adds ``slope·u + curvature·u²/2 + interaction·x·u + m(u) − m(0)``. Slope, curvature and
    interaction are Gaussian; ``m`` is a Matérn-5/2 process over u that varies slowly with x. A choice adds
    ``offset + interaction·x``, independently for each candidate except the default. So the prior of the
    arms with the default values is that of batch sizes alone.

    Attributes:
        slope_sd: Standard deviation of the slope, per unit.
        curvature: Mean of the curvature, per unit².
        curvature_sd: Standard deviation of the curvature.
        interaction_sd: Standard deviation of the interaction, per octave of batch size and unit.
        matern_sd: Standard deviation of the part of ``m`` that is equal for all batch sizes.
        joint_sd: Standard deviation of the part that varies with the batch size.
        matern_units: Length scale of ``m``.
        choice_sd: Standard deviation of the offset of a choice.
    """

    slope_sd: float
    curvature: float
    curvature_sd: float
    interaction_sd: float
    matern_sd: float
    joint_sd: float
    matern_units: float
    choice_sd: float


@dataclass(frozen=True)
class SmoothPrior:
    """A Gaussian process over x = log2(batch size / default), in octaves.

    ``h(x) = level + shape(x) + slope·x + curvature·x²/2 + matern(x) + own(x)``. The shape is one of several,
    all equally likely. Level, slope and curvature are Gaussian, ``matern`` is a Matérn-5/2 process, and ``own``
    is independent between arms. Each further parameter adds its `ParameterPrior`.

    Attributes:
        level_sd: Standard deviation of the level; large for an unknown level.
        slope: Mean of the slope, per octave.
        slope_sd: Standard deviation of the slope.
        curvature: Mean of the curvature, per octave².
        curvature_sd: Standard deviation of the curvature.
        matern_sd: Standard deviation of the Matérn process.
        matern_octaves: Length scale of the Matérn process.
        own_sd: Standard deviation of ``own``.
        parameter: Effect of each further parameter.
        shapes: The shapes; None: the shape is 0.
    """

    level_sd: float
    slope: float
    slope_sd: float
    curvature: float
    curvature_sd: float
    matern_sd: float
    matern_octaves: float
    own_sd: float
    parameter: ParameterPrior
    shapes: EpochShapes | None = None


@lru_cache(maxsize=256)
def prior_means(prior: SmoothPrior, space: ConfigurationSpace) -> Matrix:
    """Mean of h at the arms for level 0 under each shape, shape (shapes, arms)."""
    mean = prior_mean(prior, space)
    means = mean[None] if prior.shapes is None else mean + prior.shapes.at(octaves_from_default(space))
    means.setflags(write=False)
    return means


@lru_cache(maxsize=256)
def prior_mean(prior: SmoothPrior, space: ConfigurationSpace) -> Vector:
    """Mean of h at the arms for level 0 and shape 0, shape (arms,)."""
    sizes = octaves_from_default(space)
    mean: Vector = prior.slope * sizes + prior.curvature * sizes**2 / 2
    for parameter, units in zip(space.parameters, parameter_coordinates(space), strict=True):
        if parameter.scale is not Scale.CHOICE:
            mean = mean + prior.parameter.curvature * units**2 / 2
    mean.setflags(write=False)
    return mean


@lru_cache(maxsize=256)
def prior_covariance(prior: SmoothPrior, space: ConfigurationSpace) -> Matrix:
    """Covariance of h at the arms, shape (arms, arms)."""
    sizes = octaves_from_default(space)
    bend = sizes**2 / 2
    matern = _matern(sizes, prior.matern_octaves)
    covariance: Matrix = (
        prior.level_sd**2
        + prior.slope_sd**2 * np.outer(sizes, sizes)
        + prior.curvature_sd**2 * np.outer(bend, bend)
        + prior.matern_sd**2 * matern
        + prior.own_sd**2 * np.eye(len(space))
    )
    for parameter, units in zip(space.parameters, parameter_coordinates(space), strict=True):
        covariance = covariance + _parameter_covariance(prior.parameter, parameter, units, sizes, matern)
    covariance.setflags(write=False)
    return covariance


def _parameter_covariance(
    prior: ParameterPrior, parameter: Parameter, units: Vector, sizes: Vector, matern_of_sizes: Matrix
) -> Matrix:
    """Covariance of the effect of one parameter.

    Args:
        prior: The prior of the effect.
        parameter: The parameter.
        units: Its coordinate at each arm.
        sizes: Octaves of batch size of each arm from the default.
        matern_of_sizes: Correlations of the Matérn process over batch sizes.
    """
    moved_sizes = prior.interaction_sd**2 * np.outer(sizes, sizes)
    if parameter.scale is Scale.CHOICE:
        changed = units != parameter.coordinates[parameter.default]
        same: Matrix = (units[:, None] == units[None, :]) & changed[:, None]
        return same * (prior.choice_sd**2 + moved_sizes)
    bend = units**2 / 2
    # The process relative to its value at the default, which is the last arm of the extended coordinates.
    matern = _matern(np.append(units, 0.0), prior.matern_units)
    from_default = matern[:-1, :-1] - matern[:-1, -1:] - matern[-1:, :-1] + 1
    covariance: Matrix = (
        (prior.slope_sd**2 + moved_sizes) * np.outer(units, units)
        + prior.curvature_sd**2 * np.outer(bend, bend)
        + (prior.matern_sd**2 + prior.joint_sd**2 * matern_of_sizes) * from_default / 2
    )
    return covariance


def _matern(positions: Vector, length: float) -> Matrix:
    """Correlations of a Matérn-5/2 process."""
    distance = np.sqrt(5.0) * np.abs(positions[:, None] - positions[None, :]) / length
    matern: Matrix = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return matern
