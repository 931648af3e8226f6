"""Belief about the epochs of one attempt that has not reached the target, from prior, curve and bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattloop_planner.bandit.curve_model import CurvePrediction
from wattloop_planner.bandit.gaussian_process import moments_beyond

# Probability that a curve says nothing about the epochs, and the standard deviation of the predictions then.
WORTHLESS_PROBABILITY = 0.1
WORTHLESS_SD = 1.5


@dataclass(frozen=True)
class AttemptEpochs:
    """Gaussian approximation of the log epochs of one attempt to the target.

    Attributes:
        mean: Mean of the log epochs.
        variance: Variance of them.
    """

    mean: float
    variance: float

    def with_curve(self, prediction: CurvePrediction) -> AttemptEpochs:
        """The moments after a prediction from the attempt's curve.

        The prediction equals the log epochs with the error of its spread, or is unrelated to them with a
        small probability. The more a prediction contradicts the prior, the likelier it is unrelated.

        Example:
            >>> AttemptEpochs(0.0, 0.1).with_curve(CurvePrediction(0.2, 0.2)).mean < 0.2
            True
        """
        total = self.variance + prediction.sd**2
        surprise = prediction.log_epochs - self.mean
        related = (1 - WORTHLESS_PROBABILITY) * _density(surprise, total)
        unrelated = WORTHLESS_PROBABILITY * _density(surprise, total + WORTHLESS_SD**2)
        weight = related / (related + unrelated)
        shift = surprise * self.variance / total
        reduced = self.variance * prediction.sd**2 / total
        variance = weight * reduced + (1 - weight) * self.variance + weight * (1 - weight) * shift**2
        return AttemptEpochs(self.mean + weight * shift, variance)

    def beyond(self, log_epochs: float, outlier_probability: float = 0.0) -> AttemptEpochs:
        """The moments given that the attempt takes more epochs, unless it is an outlier."""
        return AttemptEpochs(*moments_beyond(self.mean, self.variance, 0.0, log_epochs, outlier_probability))


def _density(distance: float, variance: float) -> float:
    return math.exp(-min(distance**2 / variance / 2, 600.0)) / math.sqrt(variance)
