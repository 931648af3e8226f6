"""Estimates with standard errors: from repetitions, by a jackknife over groups and Student's t, and from each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

NORMAL_95 = 1.959964
# A power whose error is a larger part of it is unknown.
MAX_RELATIVE_ERROR = 0.1


@dataclass(frozen=True)
class RegressionEstimate:
    """An estimate with its standard error.

    Attributes:
        value: The estimate.
        error: Its standard error; ±1.96 of it are an interval of 95 %.
    """

    value: float
    error: float


def widening(degrees_of_freedom: int) -> float:
    """The factor by which an error estimated from few groups is too small.

    1.96 standard errors times this factor are an interval of 95 %. It is the quantile of Student's t over
    that of the normal distribution, by its series (Abramowitz and Stegun 1964, 26.7.5).

    Example:
        >>> [round(1.96 * widening(count), 2) for count in (4, 10, 30)]
        [2.77, 2.23, 2.04]
    """
    z, n = NORMAL_95, max(degrees_of_freedom, 3)
    z3, z5, z7 = z**3, z**5, z**7
    quantile = (
        z
        + (z3 + z) / (4 * n)
        + (5 * z5 + 16 * z3 + 3 * z) / (96 * n**2)
        + (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n**3)
    )
    return quantile / z


def jackknife_variance(without: Sequence[float]) -> float:
    """Variance of an estimate, from the estimates without each group (Efron and Stein 1981).

    Example:
        >>> values = [1.0, 2.0, 4.0, 5.0]
        >>> without = [(12.0 - value) / 3 for value in values]
        >>> round(jackknife_variance(without), 6) == round(sum((v - 3) ** 2 for v in values) / 3 / 4, 6)
        True
    """
    mean = sum(without) / len(without)
    return (len(without) - 1) / len(without) * sum((value - mean) ** 2 for value in without)


def total(parts: Sequence[RegressionEstimate | None]) -> RegressionEstimate | None:
    """The sum over the GPUs of a process, which do the same work: their errors count as the same; None if one is."""
    found = [part for part in parts if part is not None]
    if not found or len(found) < len(parts):
        return None
    return RegressionEstimate(sum(part.value for part in found), sum(part.error for part in found))


def combined(parts: Sequence[RegressionEstimate]) -> RegressionEstimate:
    """Mean of independent estimates of one value, at least one, weighted by their errors.

    Example:
        >>> mean = combined([RegressionEstimate(10.0, 1.0), RegressionEstimate(20.0, 3.0)])
        >>> round(mean.value, 6), round(mean.error, 6)
        (11.0, 0.948683)
    """
    weights = [1 / max(part.error, 1e-9) ** 2 for part in parts]
    value = sum(weight * part.value for weight, part in zip(weights, parts, strict=True)) / sum(weights)
    return RegressionEstimate(value, 1 / math.sqrt(sum(weights)))


def known(estimate: RegressionEstimate | None) -> RegressionEstimate | None:
    """The estimate if its error is small enough."""
    if estimate is None or estimate.value <= 0 or estimate.error > MAX_RELATIVE_ERROR * estimate.value:
        return None
    return estimate


def product(power: RegressionEstimate, time: RegressionEstimate) -> RegressionEstimate:
    """The energy of a power for a time, with independent errors.

    Example:
        >>> product(RegressionEstimate(300.0, 4.0), RegressionEstimate(0.05, 0.0005))
        RegressionEstimate(value=15.0, error=0.25)
    """
    return RegressionEstimate(power.value * time.value, math.hypot(power.error * time.value, power.value * time.error))
