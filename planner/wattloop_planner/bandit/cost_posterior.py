"""Posterior of the cost of reaching the target with each batch size.

log cost = log epochs + log epoch cost, and both terms are Gaussian. A limit of epochs adds the cost of
attempts that end before the target.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wattloop_planner.bandit import _cost_model
from wattloop_planner.bandit.epoch_costs import ShownEpochCost
from wattloop_planner.bandit.gaussian_process import Flags, Matrix, Vector
from wattloop_planner.bandit.policy import NINETY_PERCENT
from wattloop_planner.bandit.posterior import Posterior

Array = NDArray[np.float64]
# Variance that makes a covariance with exactly known arms positive definite.
JITTER = 1e-10
# Rows of the moments: variance, that of epochs, log expected cost without a limit, limit distance, probability to reach
# the target, log expected cost.
MOMENTS = 6

CompiledPosterior = tuple[Vector, Matrix, Vector, Matrix, float, float, Matrix, bool]


def log_limit_of(max_epochs: int | None) -> float:
    """Log of the limit of epochs; infinity without one.

    Runs reach the target after whole epochs, so the limit lies half an epoch above the last one.
    """
    return math.inf if max_epochs is None else math.log(max_epochs + 0.5)


def log_limit_factor(log_epochs: Array, spread: Array, log_limit: float) -> Array:
    """Log of the factor by which a limit changes the expected cost of reaching the target.

    With X ~ N(m, s²), the log epochs to the target, d = (log K − m) / s and the limit K, it reduces the expected
    epochs of one attempt by the factor A = E[min(e^X, K)] / E[e^X] = Φ(d − s) + K·e^(−m − s²/2)·Φ(−d). The attempt
    reaches the target with the probability q = Φ(d). The factor is A / q. It is 1 for a distant limit. It can be
    below 1 if the epochs are very uncertain, because the limit also ends extremely long attempts.

    Args:
        log_epochs: Mean m of the log epochs of an attempt, shape (arms,).
        spread: Standard deviation s of them, shape (arms,).
        log_limit: Log of the limit.

    Returns:
        Logarithms, shape (arms,).

    Example:
        >>> np.exp(log_limit_factor(np.array([0.0]), np.array([0.1]), 0.0)).round(2).tolist()
        [1.92]
        >>> np.exp(log_limit_factor(np.array([0.0]), np.array([0.1]), 2.0)).round(6).tolist()
        [1.0]
    """
    pairs = zip(log_epochs.tolist(), spread.tolist(), strict=True)
    return np.array([_cost_model.log_limit_factor(mean, sd, log_limit) for mean, sd in pairs])


@dataclass(frozen=True)
class CostPosterior:
    """Joint Gaussian posterior of the log cost of each arm; all vectors have shape (arms,).

    Attributes:
        log_cost: Mean of the log cost of a typical run.
        covariance: Covariance of the log cost, shape (arms, arms).
        log_epochs: Mean of the log epochs of a typical run.
        epochs_covariance: Covariance of the log epochs, shape (arms, arms).
        log_epoch_cost: Mean of the log epoch cost.
        epoch_cost_covariance: Covariance of the log epoch cost, shape (arms, arms).
        epochs_share: Part of the cost of a typical run that its epochs cost; the rest is `own_start_up_joules`.
        noise_sd: Standard deviation of log epochs between runs of one arm.
        epoch_cost_noise_sd: The same of the log cost of an epoch.
        level_known: Whether costs are in joules. If not, they are known up to a common factor.
        log_limit: Log of the epochs after which an attempt is exhausted; infinity if unlimited.
        start_up_joules: Typical cost of a start that no arm is below. The costs of the arms are without it.
        own_start_up_joules: What the start of each arm costs beyond that. The costs of the arms contain it.
        start_up_risk_joules: What the next start of each arm is expected to cost beyond the typical one. The costs of
            the arms are without it, because that start shows what later ones cost.
    """

    log_cost: Vector
    covariance: Matrix
    log_epochs: Vector
    epochs_covariance: Matrix
    log_epoch_cost: Vector
    epoch_cost_covariance: Matrix
    epochs_share: Vector
    noise_sd: float
    epoch_cost_noise_sd: float
    measured: Flags
    level_known: bool
    log_limit: float = math.inf
    start_up_joules: float = 0.0
    own_start_up_joules: Vector = field(default_factory=lambda: np.zeros(1))
    start_up_risk_joules: Vector = field(default_factory=lambda: np.zeros(1))

    @cached_property
    def compiled(self) -> CompiledPosterior:
        """The posterior as arguments of `_cost_model`; the last are the moments below, a row each, and `is_limited`."""
        given = (self.log_cost, self.covariance, self.log_epochs, self.epochs_covariance, self.noise_sd, self.log_limit)
        moments = np.empty((MOMENTS, len(self.log_cost)))
        is_limited = _cost_model.expected_costs(*given, moments)
        # Later decisions read them again.
        moments.flags.writeable = False
        return *given, moments, is_limited

    def _moment(self, row: int) -> Vector:
        moment: Vector = self.compiled[6][row]
        return moment

    @property
    def variance(self) -> Vector:
        """Variance of the log cost of a typical run."""
        return self._moment(0)

    @property
    def epochs_variance(self) -> Vector:
        """Variance of the log epochs of a typical run."""
        return self._moment(1)

    @cached_property
    def epoch_cost_variance(self) -> Vector:
        """Variance of the log epoch cost, as it changes the log cost of a run."""
        variance: Vector = np.maximum(self.epoch_cost_covariance.diagonal() * self.epochs_share**2, 1e-12)
        return variance

    @property
    def limit_distance(self) -> Vector:
        """The limit in standard deviations of an attempt's log epochs above their mean."""
        return self._moment(3)

    @property
    def reach_probability(self) -> Vector:
        """Probability that an attempt reaches the target within the limit of epochs."""
        return self._moment(4)

    @property
    def log_expected(self) -> Vector:
        """Log of the expected cost of reaching the target, attempts that end at the limit of epochs included."""
        return self._moment(5)

    @property
    def is_limited(self) -> bool:
        """Whether the limit of epochs is near enough to the epochs of an arm to have an effect."""
        return self.compiled[7]

    def samples(self, generator: np.random.Generator, count: int) -> Matrix:
        """Log of the cost of reaching the target with each arm in joint samples of epochs and epoch costs.

        In a sample, the epochs of a typical run are known, and those of a run vary by the noise between runs.

        Returns:
            Shape (count, arms).
        """
        shape = (count, len(self.log_cost))
        epochs = generator.standard_normal(shape) @ _root(self.epochs_covariance).T
        epoch_costs = generator.standard_normal(shape) @ _root(self.epoch_cost_covariance).T
        log_costs: Matrix = self.log_cost + self.epochs_share * (epochs + epoch_costs)
        if not self.is_limited:
            return log_costs
        noise = np.full(shape[1], self.noise_sd)
        limited = [log_limit_factor(self.log_epochs + each, noise, self.log_limit) for each in epochs]
        return log_costs + np.array(limited)

    @cached_property
    def run_noise_sd(self) -> float:
        """Standard deviation of the log cost between runs of one arm."""
        return math.hypot(self.noise_sd, self.epoch_cost_noise_sd)

    def estimates(self, noise_half_width: float, start_half_width: float) -> tuple[Vector, Vector, Vector]:
        """Expected cost of a recurrence in joules, and the ends of the interval that contains 90 % of later ones.

        Args:
            noise_half_width: Half of the central 90 % interval of the log cost of epochs between runs of one arm.
            start_half_width: The same of the log cost of a start.
        """
        expected = _exp(self.log_expected + self.epoch_cost_noise_sd**2 / 2)
        log_middle = self.log_expected - (self.variance + self.noise_sd**2) / 2
        half = np.hypot(NINETY_PERCENT * np.sqrt(self.variance), noise_half_width)
        middle, low, high = (_exp(log_middle + each) for each in (0.0, -half, half))
        start = self.start_up_joules + self.own_start_up_joules
        below = np.hypot(middle - low, start * -math.expm1(-start_half_width))
        above = np.hypot(high - middle, start * math.expm1(start_half_width))
        ends = middle - below, np.maximum(middle + above, expected)
        low, high = (self.start_up_joules + end for end in ends)
        return self.start_up_joules + expected, low, high


def cost_posterior(
    posterior: Posterior,
    gpu_model: str,
    shown: ShownEpochCost | None = None,
    *,
    max_epochs: int | None = None,
) -> CostPosterior | None:
    """The posterior of the cost on a GPU model.

    Args:
        posterior: The posterior of epochs and epoch costs.
        gpu_model: The GPU model of the next attempt.
        shown: What a running attempt shows of its arm's epoch cost.
        max_epochs: Epochs after which an attempt is exhausted; None if unlimited.

    Returns:
        None before any arm has reached the target.
    """
    epoch_cost = posterior.epoch_costs.posterior(gpu_model, shown)
    if epoch_cost is None or not posterior.ever_reached.any():
        return None
    log_epochs, epochs_covariance, noise_sd = posterior.epochs()
    log_cost, log_epoch_cost = log_epochs + epoch_cost.mean, epoch_cost.mean
    covariance = epochs_covariance + epoch_cost.covariance
    expected = posterior.epoch_costs.start_ups.expected(gpu_model)
    start_ups, costs = expected.typical, expected.typical.tolist()
    least = min(costs)
    share = np.ones(len(log_cost))
    if epoch_cost.level_known and max(costs) > least:
        # What the start of an arm costs beyond the least one is a known part of the cost of its runs.
        share = 1 / (1 + (start_ups - least) / _exp(log_cost))
        covariance = covariance * np.outer(share, share)
        log_cost, log_epoch_cost = log_cost - np.log(share), log_epoch_cost - np.log(share)
    return CostPosterior(
        log_cost=log_cost,
        covariance=covariance,
        log_epochs=log_epochs,
        epochs_covariance=epochs_covariance,
        log_epoch_cost=log_epoch_cost,
        epoch_cost_covariance=epoch_cost.covariance,
        epochs_share=share,
        noise_sd=noise_sd,
        epoch_cost_noise_sd=epoch_cost.noise_sd,
        measured=epoch_cost.measured,
        level_known=epoch_cost.level_known,
        log_limit=log_limit_of(max_epochs),
        start_up_joules=least,
        own_start_up_joules=start_ups - least,
        start_up_risk_joules=expected.risk,
    )


def _exp(values: Vector) -> Vector:
    powers: Vector = np.exp(np.clip(values, -600.0, 600.0))
    return powers


def _root(covariance: Matrix) -> Matrix:
    """Lower triangular root of a covariance, which may be singular."""
    root: Matrix = np.asarray(np.linalg.cholesky(covariance + JITTER * np.eye(len(covariance))), dtype=np.float64)
    return root
