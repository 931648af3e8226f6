"""Posterior of the cost of reaching the target with each batch size.

log cost = log epochs + log epoch cost, and both terms are Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wattloop_planner.bandit.gaussian_process import Flags, Matrix, Vector
from wattloop_planner.bandit.policy import PartialObservation
from wattloop_planner.bandit.posterior import Posterior

NINETY_PERCENT = 1.6448536269514722


@dataclass(frozen=True)
class CostPosterior:
    """Joint Gaussian posterior of the log cost of each arm; all vectors have shape (arms,).

    Attributes:
        log_cost: Mean of the log cost of a typical run.
        covariance: Covariance of the log cost, shape (arms, arms).
        epochs_variance: Variance of the log epochs.
        log_epoch_cost: Mean of the log epoch cost.
        epoch_cost_variance: Variance of the log epoch cost.
        noise_sd: Standard deviation of log cost between runs of one arm.
        measured: Which epoch costs are known exactly.
        level_known: Whether costs are in joules. If not, they are known up to a common factor.
    """

    log_cost: Vector
    covariance: Matrix
    epochs_variance: Vector
    log_epoch_cost: Vector
    epoch_cost_variance: Vector
    noise_sd: float
    measured: Flags
    level_known: bool

    @cached_property
    def variance(self) -> Vector:
        """Variance of the log cost of a typical run."""
        variance: Vector = np.maximum(self.covariance.diagonal(), 1e-12)
        return variance

    @cached_property
    def log_expected(self) -> Vector:
        """Log of the expected cost of one run that reaches the target."""
        expected: Vector = self.log_cost + (self.variance + self.noise_sd**2) / 2
        return expected

    def interval(self) -> tuple[Vector, Vector]:
        """Lower and upper end of the central 90 % interval of the expected cost, in joules."""
        half = NINETY_PERCENT * np.sqrt(self.variance)
        middle = self.log_cost + self.noise_sd**2 / 2
        return _exp(middle - half), _exp(middle + half)


def cost_posterior(
    posterior: Posterior, gpu_model: str, partial: PartialObservation | None = None
) -> CostPosterior | None:
    """The posterior of the cost on a GPU model.

    Args:
        posterior: The posterior of epochs and epoch costs.
        gpu_model: The GPU model of the next attempt.
        partial: A running attempt whose epoch cost is known.

    Returns:
        None before any arm has reached the target.
    """
    epoch_cost = posterior.epoch_costs.posterior(gpu_model, partial)
    if epoch_cost is None or not posterior.ever_reached.any():
        return None
    log_epochs, epochs_covariance, noise_sd = posterior.epochs()
    return CostPosterior(
        log_cost=log_epochs + epoch_cost.mean,
        covariance=epochs_covariance + epoch_cost.covariance,
        epochs_variance=np.maximum(epochs_covariance.diagonal(), 1e-12),
        log_epoch_cost=epoch_cost.mean,
        epoch_cost_variance=np.maximum(epoch_cost.covariance.diagonal(), 1e-12),
        noise_sd=noise_sd,
        measured=epoch_cost.measured,
        level_known=epoch_cost.level_known,
    )


def _exp(values: Vector) -> Vector:
    """Exponential that never overflows."""
    powers: Vector = np.exp(np.clip(values, -600.0, 600.0))
    return powers
