"""Configurations: the arms of a job, each a batch size with a value of every further parameter.

The scale of a parameter says how the distance between its values is measured. It follows from the
candidates: see `scale_of`. A job without parameters has one arm per batch size.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from wattloop.printable import printable
from wattloop_planner.observations import ParameterValues

# Coordinates of a linear parameter cover this range, which is that of a logarithmic one from 1 to 8.
LINEAR_RANGE = 3.0
# A value of this form is a number; more digits could overflow.
NUMBER_PATTERN = r"[-+]?([0-9]{1,32}([.][0-9]{0,32})?|[.][0-9]{1,32})([eE][-+]?[0-9]{1,2})?"
# A decision is computed from the covariances of all pairs of arms.
MAX_CONFIGURATIONS = 256


class Scale(StrEnum):
    """How the distance between two values of a parameter is measured.

    LOG: by their ratio; positive numbers.
    LINEAR: by their difference; numbers.
    CHOICE: not at all; any text.
    """

    LOG = "log"
    LINEAR = "linear"
    CHOICE = "choice"


@dataclass(frozen=True)
class Parameter:
    """A further parameter of the training and its candidates.

    Attributes:
        candidates: The values to choose from, distinct, as text; they include the default.
    """

    name: str
    candidates: tuple[str, ...]
    default: str

    def __post_init__(self) -> None:
        """Check the candidates.

        Raises:
            ValueError: The default is no candidate, or a value occurs twice.
        """
        if self.default not in self.candidates:
            raise ValueError(f"parameter {self.name}: the default {self.default} is not one of its candidates")
        if len(set(_numbers(self.candidates) or self.candidates)) < len(self.candidates):
            raise ValueError(f"parameter {self.name}: a candidate occurs twice in {', '.join(self.candidates)}")

    @cached_property
    def scale(self) -> Scale:
        """How the distance between two values is measured."""
        return scale_of(self.candidates)

    @cached_property
    def coordinates(self) -> dict[str, float]:
        """Coordinate of each candidate, 0 for the default; of a choice, its position among the candidates.

        Example:
            >>> Parameter("learning_rate", ("0.1", "0.4"), "0.1").coordinates
            {'0.1': 0.0, '0.4': 2.0}
        """
        if self.scale is Scale.CHOICE:
            return {text: float(position) for position, text in enumerate(self.candidates)}
        numbers = {text: float(text) for text in self.candidates}
        default = numbers[self.default]
        if self.scale is Scale.LOG:
            return {text: math.log2(number / default) for text, number in numbers.items()}
        extent = max(numbers.values()) - min(numbers.values()) or 1.0
        return {text: (number - default) / extent * LINEAR_RANGE for text, number in numbers.items()}


def scale_of(candidates: Sequence[str]) -> Scale:
    """How the distance between two values of these candidates is measured.

    LOG if all are positive numbers and their ratios, in rising order, are nearer to each other than their differences:
    the logarithms of the ratios vary less between the largest and the smallest. Two candidates have one ratio and one
    difference: LOG if the larger one is at least twice the smaller one, because the model would take two values within
    a factor of two for almost the same. LINEAR for other numbers, CHOICE for other values.

    Example:
        >>> [scale_of(each).value for each in (("0.03", "0.1", "0.3"), ("10", "20", "30"), ("adam", "sgd"))]
        ['log', 'linear', 'choice']
    """
    numbers = _numbers(candidates)
    if numbers is None:
        return Scale.CHOICE
    ordered = sorted(set(numbers))
    if ordered[0] <= 0:
        return Scale.LINEAR
    pairs = list(itertools.pairwise(ordered))
    ratios = [math.log(larger / smaller) for smaller, larger in pairs]
    if len(pairs) < 2:
        return Scale.LOG if pairs and ratios[0] >= math.log(2) else Scale.LINEAR
    differences = [larger - smaller for smaller, larger in pairs]
    # The quotients of largest and smallest, without a division by a ratio that rounds to 0.
    return Scale.LOG if max(ratios) * min(differences) < max(differences) * min(ratios) else Scale.LINEAR


def _numbers(candidates: Sequence[str]) -> list[float] | None:
    """The candidates as numbers; None if one of them is not a number."""
    return (
        [float(text) for text in candidates] if all(re.fullmatch(NUMBER_PATTERN, text) for text in candidates) else None
    )


@dataclass(frozen=True, order=True)
class Configuration:
    """One arm.

    Example:
        >>> str(Configuration(32)), str(Configuration(32, (("learning_rate", "0.1"),)))
        ('32', '32 with learning_rate 0.1')
    """

    batch_size: int
    parameters: ParameterValues = ()

    def __str__(self) -> str:
        """The batch size, and the parameters if there are any, as printable text."""
        values = ", ".join(f"{name} {value}" for name, value in self.parameters)
        return printable(f"{self.batch_size} with {values}") if values else str(self.batch_size)


@dataclass(frozen=True)
class ConfigurationSpace:
    """The arms of a job in a fixed order: by rising batch size, then by the candidates of each parameter.

    Attributes:
        batch_sizes: The batch sizes, distinct, in rising order.
    """

    batch_sizes: tuple[int, ...]
    default_batch_size: int
    parameters: tuple[Parameter, ...] = ()

    @cached_property
    def size(self) -> int:
        """Number of arms, without computing them."""
        return len(self.batch_sizes) * math.prod(len(parameter.candidates) for parameter in self.parameters)

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """The arms; a position in this tuple is the index of an arm."""
        names = [parameter.name for parameter in self.parameters]
        combinations = list(itertools.product(*(parameter.candidates for parameter in self.parameters)))
        return tuple(
            Configuration(size, tuple(zip(names, values, strict=True)))
            for size in self.batch_sizes
            for values in combinations
        )

    @cached_property
    def default(self) -> int:
        """Index of the default configuration."""
        return self._indices[self.default_batch_size, tuple((each.name, each.default) for each in self.parameters)]

    def index(self, batch_size: int, parameters: ParameterValues = ()) -> int | None:
        """Index of an arm; None if the batch size, a parameter or a value is not offered.

        A parameter without a value has its default: it was not searched over when the attempt ran.
        """
        if not self.parameters:
            return self._indices.get((batch_size, parameters))
        given: Mapping[str, str] = dict(parameters)
        if not given.keys() <= {parameter.name for parameter in self.parameters}:
            return None
        values = tuple((each.name, given.get(each.name, each.default)) for each in self.parameters)
        return self._indices.get((batch_size, values))

    def arm(self, batch_size: int, parameters: ParameterValues = ()) -> int:
        """Index of an arm that is offered.

        Raises:
            ValueError: It is not offered.
        """
        arm = self.index(batch_size, parameters)
        if arm is None:
            raise ValueError(f"batch size {Configuration(batch_size, parameters)} is not offered")
        return arm

    def distance(self, one: int, other: int) -> float:
        """Distance of two arms: octaves of batch size, and 1 for every parameter that differs."""
        first, second = self.configurations[one], self.configurations[other]
        differing = sum(x != y for x, y in zip(first.parameters, second.parameters, strict=True))
        return abs(math.log2(first.batch_size / second.batch_size)) + differing

    def __len__(self) -> int:
        """Number of arms."""
        return self.size

    @cached_property
    def _indices(self) -> dict[tuple[int, ParameterValues], int]:
        return {(each.batch_size, each.parameters): arm for arm, each in enumerate(self.configurations)}


@lru_cache(maxsize=256)
def configuration_space(
    batch_sizes: tuple[int, ...], default_batch_size: int, parameters: tuple[Parameter, ...] = ()
) -> ConfigurationSpace:
    """The arms of a job; kept, because every decision of a job has the same ones.

    Args:
        batch_sizes: The batch sizes, distinct, in rising order.
        default_batch_size: The default; the nearest batch size counts if it is not one of them.
        parameters: The further parameters.
    """
    return ConfigurationSpace(batch_sizes, nearest_batch_size(batch_sizes, default_batch_size), parameters)


def nearest_batch_size(batch_sizes: tuple[int, ...], wanted: int) -> int:
    """The batch size nearest to ``wanted`` on a logarithmic scale; of two equally near ones, the smaller.

    Example:
        >>> nearest_batch_size((8, 16, 64), 32)
        16
    """
    return min(batch_sizes, key=lambda size: (abs(math.log2(size) - math.log2(wanted)), size))
