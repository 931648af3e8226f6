"""Standard errors from repetitions: a jackknife over groups, and Student's t."""

from __future__ import annotations

from collections.abc import Sequence

NORMAL_95 = 1.959964


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
