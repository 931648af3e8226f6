"""The prior of the noise of log epochs between runs of one arm. It needs no NumPy: the operator's costs use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NoisePrior:
    """Prior of the standard deviation of log epochs between runs of one arm.

    Attributes:
        sd: Prior guess of the standard deviation.
        weight: Degrees of freedom of the guess.
        min_sd: Lower bound of the estimate.
        heavy_tails: The mean of n runs has the precision of n / (1 + heavy_tails / n) runs, so that one
            distant run does not exclude an arm.
        outlier_probability: Probability that a run never reaches the target, independent of its arm. It
            applies only if the run is the arm's only observation.
    """

    sd: float = 0.15
    weight: float = 4.0
    min_sd: float = 0.02
    heavy_tails: float = 2.0
    outlier_probability: float = 0.08
