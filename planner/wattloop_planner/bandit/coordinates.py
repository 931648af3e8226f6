"""Coordinates of the arms of a configuration space, as arrays over its arms."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from wattloop_planner.bandit.configuration import ConfigurationSpace, Scale
from wattloop_planner.bandit.gaussian_process import Flags, Indices, Matrix, Vector


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
