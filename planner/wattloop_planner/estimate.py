"""An estimate: a value with its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """An estimated value with the central 90 % interval of its posterior.

    Attributes:
        value: The expected value.
        low: Lower end of the interval.
        high: Upper end of it.
    """

    value: float
    low: float
    high: float
