"""Gaussian process priors over the arms of a configuration space: coordinates of the arms, and moments at them."""

from functools import lru_cache

import numpy as np

from wattloop_planner.bandit.configuration import ConfigurationSpace, Parameter, Scale
from wattloop_planner.bandit.gaussian_process import Flags, Indices, Matrix, Vector
from wattloop_planner.bandit.priors import EpochShapes, ParameterPrior, SmoothPrior


@lru_cache(maxsize=256)
def prior_means(prior: SmoothPrior, space: ConfigurationSpace) -> Matrix:
    """Mean of h at the arms for level 0 under each shape, shape (shapes, arms)."""
    mean = prior_mean(prior, space)
    means = mean[None] if prior.shapes is None else mean + epochs_of_shapes(prior.shapes, octaves_from_default(space))
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


def epochs_of_shapes(shapes: EpochShapes, octaves: Vector) -> Matrix:
    """Log epochs for a = 1 under each hypothesis of the shapes, shape (hypotheses, arms).

    Args:
        shapes: The hypotheses.
        octaves: log2 of the batch size of each arm over the default, shape (arms,).

    Example:
        >>> epochs_of_shapes(EpochShapes((0, 1), (-9, -9)), np.array([0.0, 1.0])).round(2).tolist()
        [[0.7, 1.1], [0.41, 0.69]]
    """
    first, last = shapes.critical_octaves
    least, largest = shapes.small_octaves
    critical, small = np.meshgrid(np.arange(first, last + 1.0), np.arange(least, largest + 1.0))
    more_epochs = np.log1p(2.0 ** (octaves - critical.ravel()[:, None]))
    found: Matrix = more_epochs + np.log1p(2.0 ** (small.ravel()[:, None] - octaves))
    return found


def _parameter_covariance(
    prior: ParameterPrior, parameter: Parameter, units: Vector, sizes: Vector, matern_of_sizes: Matrix
) -> Matrix:
    """Covariance of the effect of one parameter."""
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
    distance = np.sqrt(5.0) * np.abs(positions[:, None] - positions[None, :]) / length
    matern: Matrix = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return matern


@lru_cache(maxsize=256)
def octaves(space: ConfigurationSpace) -> Vector:
    """log2 of the batch size of each arm, shape (arms,)."""
    return _fixed(np.log2(_batch_sizes(space)))


@lru_cache(maxsize=256)
def octaves_from_default(space: ConfigurationSpace) -> Vector:
    """log2 of the batch size of each arm over the default one, shape (arms,)."""
    return _fixed(np.log2(_batch_sizes(space) / space.default_batch_size))


@lru_cache(maxsize=256)
def parameter_coordinates(space: ConfigurationSpace) -> Matrix:
    """Coordinate of each arm's value of each parameter, shape (parameters, arms); 0 for the default.

    The coordinate of a choice is the position of the value among the candidates.
    """
    rows = [
        [parameter.coordinates[arm.parameters[k][1]] for arm in space.configurations]
        for k, parameter in enumerate(space.parameters)
    ]
    return _fixed(np.array(rows, dtype=np.float64).reshape(len(space.parameters), len(space)))


@lru_cache(maxsize=256)
def distances(space: ConfigurationSpace) -> Matrix:
    """Distance of each two arms: octaves of batch size, and 1 for every parameter that differs, shape (arms, arms)."""
    sizes, values = octaves(space), parameter_coordinates(space)
    return _fixed(np.abs(sizes[:, None] - sizes[None, :]) + (values[:, :, None] != values[:, None, :]).sum(axis=0))


@lru_cache(maxsize=256)
def parameter_neighbours(space: ConfigurationSpace) -> Flags:
    """Whether two arms of one batch size differ in one parameter, by one step, shape (arms, arms)."""
    sizes = octaves(space)
    differing = np.zeros((len(space), len(space)), dtype=np.intp)
    one_step = np.zeros((len(space), len(space)), dtype=np.bool_)
    for parameter, row in zip(space.parameters, parameter_coordinates(space), strict=True):
        values, ranks = np.unique(row, return_inverse=True)
        apart = np.abs(ranks[:, None] - ranks[None, :])
        differing += apart > 0
        one_step |= (apart > 0) if parameter.scale is Scale.CHOICE else (apart == 1)
        assert values.size == len(parameter.candidates)
    neighbours: Flags = (sizes[:, None] == sizes[None, :]) & (differing == 1) & one_step
    neighbours.setflags(write=False)
    return neighbours


@lru_cache(maxsize=256)
def combinations(space: ConfigurationSpace) -> tuple[Indices, ...]:
    """The arms of each combination of parameter values, in rising order of batch size."""
    per_size = len(space) // len(space.batch_sizes)
    return tuple(np.arange(first, len(space), per_size) for first in range(per_size))


def _batch_sizes(space: ConfigurationSpace) -> Vector:
    return np.array([arm.batch_size for arm in space.configurations], dtype=np.float64)


def _fixed(values: Vector) -> Vector:
    values.setflags(write=False)
    return values
