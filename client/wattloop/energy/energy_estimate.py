"""An estimate of energy whose error is bounded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EnergyEstimate:
    """An estimate of energy.

    Attributes:
        joules: The estimate.
        uncertainty_joules: Bound of the error, under the assumptions that the function that estimates it states.
    """

    joules: float
    uncertainty_joules: float
