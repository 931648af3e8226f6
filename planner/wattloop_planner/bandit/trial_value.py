"""Value and cost of a trial, in units of the incumbent's expected cost of one recurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wattloop_planner.bandit.cost_posterior import CostPosterior
from wattloop_planner.bandit.curve_model import AttemptEpochs
from wattloop_planner.bandit.epoch_limit import MAX_LOG, log_attempt_factor, standardised_limit
from wattloop_planner.bandit.gaussian_process import Flags, Indices, Vector

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
FEW_NODES, FEW_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
FEW_WEIGHTS = FEW_WEIGHTS / FEW_WEIGHTS.sum()
STOPS = np.geomspace(0.9, 2.2, 12)

Array = NDArray[np.float64]


def knowledge_gain(
    cost: CostPosterior,
    incumbent: int,
    arms: Indices,
    repeats: int = 1,
    *,
    offered: Flags | None = None,
    spread: Vector | None = None,
) -> Vector:
    """Expected saving of each later recurrence after a trial, for each arm.

    The knowledge gradient for correlated beliefs (Frazier, Powell and Dayanik 2009) with the expected
    cost as the objective: a trial of arm i moves the mean of arm j by b_ij·Z, Z standard normal, and
    afterwards the arm of lowest expected cost runs. The expectation over Z is a Gauss–Hermite sum. With a
    limit of epochs, the cost of an arm is that of one attempt, and one incumbent run if it is exhausted.

    Args:
        cost: Posterior of the cost.
        incumbent: The arm that runs otherwise; its expected cost is the unit.
        arms: The arms to try, shape (tried,).
        repeats: Number of runs of each trial.
        offered: The arms that may run afterwards, shape (arms,); None: all. A cheaper arm that may not run is
            no saving.
        spread: Standard deviation of the result of a trial, shape (tried,); default: that of a mean of
            `repeats` runs.

    Returns:
        Savings, shape (tried,).
    """
    noise = cost.noise_sd**2
    if spread is None:
        spread = np.sqrt(cost.variance[arms] + noise / repeats)
    moves = cost.covariance[:, arms] / spread
    unlimited = cost.log_expected_unlimited
    changes = moves[:, :, None] * NODES - (moves**2 / 2)[:, :, None]
    costs = np.exp(np.minimum((unlimited - unlimited[incumbent])[:, None, None] + changes, MAX_LOG))
    left = slice(None) if offered is None or offered.all() else offered
    gain: Vector = (costs[incumbent] - costs[left].min(axis=0)) @ WEIGHTS
    if not cost.is_limited:
        return gain
    epoch_moves = cost.epochs_covariance[:, arms] / spread
    variance = np.maximum(cost.epochs_variance[:, None] - epoch_moves**2, 0.0) + noise
    log_epochs = cost.log_epochs[:, None, None] + epoch_moves[:, :, None] * NODES
    spreads = np.sqrt(variance)[:, :, None]
    attempts = (unlimited - cost.log_expected[incumbent])[:, None, None] + changes
    attempts += log_attempt_factor(log_epochs, spreads, cost.log_limit)
    # The retry after an exhausted attempt costs one run of the incumbent.
    costs = np.exp(np.minimum(attempts, MAX_LOG)) + ndtr(-standardised_limit(log_epochs, spreads, cost.log_limit))
    # An exhausted trial does not show how far beyond the limit its epochs are.
    exhausted = cost.limit_distance[arms][:, None] < NODES
    unknown = (costs * np.where(exhausted, WEIGHTS, 0.0)).sum(axis=-1)
    seen = np.where(exhausted, 0.0, costs[incumbent] - costs[left].min(axis=0)) @ WEIGHTS
    limited: Vector = seen + unknown[incumbent] - unknown[left].min(axis=0)
    # The limit adds no value to a trial of an arm that it affects more than the incumbent.
    less_likely = cost.limit_distance[arms] < cost.limit_distance[incumbent]
    return np.where(less_likely, np.minimum(limited, gain), limited)


def best_stop(
    mean: Array,
    spread: Array,
    failing: Array,
    horizon: float,
    paid: Array,
    *,
    limit: Array | float = math.inf,
    max_stop: float = math.inf,
    retry: float = 1.0,
) -> tuple[Array, Array]:
    """The best stopping cost of a run, and the expected remaining cost with it.

    The cost C is log-normal, conditional on exceeding the cost already paid, or infinite with the
    probability ``failing``. The stopping cost S minimises
    E[min(C, S)] − paid + retry·P(C > S) + horizon·E[(1 − C)⁺; C > S]: the cost of the run, the cost of the
    incumbent's run after a stop, and the loss in all later recurrences if the run stops too early.

    Args:
        mean: Mean of the run's log cost, any shape; the shapes of the other arrays broadcast to it.
        spread: Standard deviation of the run's log cost, including the noise between runs.
        failing: Prior probability that the run never reaches the target.
        horizon: Number of later recurrences.
        paid: Cost already paid, of the shape of `mean`.
        limit: The limit of epochs in standard deviations above the mean log cost: a run that would cost
            more ends there, as with a stop.
        max_stop: Upper bound of the stopping cost.
        retry: Cost of the incumbent's run after a stop, which includes its start.

    Returns:
        The expected remaining cost, including the incumbent's run after a stop, and the stopping cost;
        both of the shape of `mean`.
    """
    nominal = np.maximum(np.minimum(STOPS, max_stop), paid[..., None])
    at_limit = np.exp(np.minimum(mean + spread * limit, MAX_LOG))
    stops = np.maximum(np.minimum(nominal, at_limit[..., None]), paid[..., None])
    at_stop = (np.log(stops) - mean[..., None]) / spread[..., None]
    at_paid = (np.log(np.maximum(paid, 1e-9)) - mean) / spread
    expected = np.exp(np.minimum(mean + spread**2 / 2, MAX_LOG))
    alive = np.maximum(ndtr(-at_paid), 1e-9)
    mass_below = ndtr(at_stop - spread[..., None])
    below = expected[..., None] * (mass_below - ndtr(at_paid - spread)[..., None]) / alive[..., None]
    above = np.minimum(ndtr(-at_stop) / alive[..., None], 1.0)
    never = (failing / (failing + (1 - failing) * alive))[..., None]
    taken = (1 - never) * (below + stops * above) + never * stops - paid[..., None]
    stopped = (1 - never) * above + never
    at_one = np.minimum(-mean / spread, limit)
    improvement = ndtr(at_one) - expected * ndtr(at_one - spread)
    gained = ndtr(at_stop) - expected[..., None] * mass_below
    lost = np.where(at_stop < at_one[..., None], improvement[..., None] - gained, 0.0)
    total_cost = taken + retry * stopped
    index = (total_cost + horizon * np.maximum(lost, 0.0)).argmin(axis=-1).ravel()
    rows = np.arange(index.size)
    remaining = total_cost.reshape(index.size, -1)[rows, index].reshape(mean.shape)
    return remaining, nominal.reshape(index.size, -1)[rows, index].reshape(mean.shape)


def probe_option(
    cost: CostPosterior,
    incumbent: int,
    arms: Indices,
    failing: Array,
    horizon: float,
    *,
    max_stop: float = math.inf,
    retry: float = 1.0,
) -> Vector:
    """Value of the option to stop after the first epoch, when the epoch cost is known.

    The expectation over the epoch cost of max(net value of continuing, −cost of the first epoch), minus
    the net value without the option. The net value of continuing is horizon·E[(1 − C)⁺] minus the cost of
    the run.

    Args:
        cost: Posterior of the cost.
        incumbent: The arm whose expected cost is the unit.
        arms: Arms with unknown epoch costs, shape (arms,).
        failing: Their probabilities of never reaching the target, shape (arms,).
        horizon: Number of later recurrences.
        max_stop: Upper bound of the stopping cost.
        retry: Cost of the incumbent's run after a stop, which includes its start.

    Returns:
        Values, shape (arms,).
    """
    unit = cost.log_expected[incumbent]
    shift = np.sqrt(cost.epoch_cost_variance[arms])[:, None] * FEW_NODES
    mean = cost.log_cost[arms][:, None] - unit + shift
    spread = np.sqrt(cost.epochs_variance[arms] + cost.noise_sd**2)[:, None]
    limit = cost.limit_distance[arms][:, None]
    remaining, _ = best_stop(
        mean, spread, failing[:, None], horizon, np.zeros_like(mean), limit=limit, max_stop=max_stop, retry=retry
    )
    at_one = np.minimum(-mean / spread, limit)
    expected = np.exp(np.minimum(mean + spread**2 / 2, MAX_LOG))
    net = horizon * (ndtr(at_one) - expected * ndtr(at_one - spread)) - (remaining - 1)
    first_epoch = np.exp(np.minimum(cost.log_epoch_cost[arms][:, None] - unit + shift, MAX_LOG)) + (retry - 1)
    option: Vector = (np.maximum(net, -first_epoch) - net) @ FEW_WEIGHTS
    return option


@dataclass(frozen=True)
class RunningTrial:
    """A trial that is running, and what it has cost; costs are in incumbent runs.

    A curve can end a trial earlier, never later: a run that always seems to be about to reach the target
    would otherwise have no end.

    Attributes:
        cost: Posterior of the cost before the attempt, with its epoch cost.
        incumbent: The arm that runs after a stop; its expected cost is the unit.
        arm: The arm of the attempt.
        paid: Cost paid so far.
        failing: Prior probability that the attempt never reaches the target.
        horizon: Number of later recurrences.
        max_stop: Upper bound of the stopping cost.
        retry: Cost of the incumbent's run after a stop, which includes its start.
    """

    cost: CostPosterior
    incumbent: int
    arm: int
    paid: float
    failing: float
    horizon: float
    max_stop: float = math.inf
    retry: float = 1.0

    @property
    def stop(self) -> float:
        """The best stopping cost, without a curve."""
        return self._without_curve[1]

    def is_worth(self, needed: float, attempt: AttemptEpochs | None, epochs: float, offered: Flags | None) -> bool:
        """Whether the net value of continuing is at least a value.

        Args:
            needed: The value.
            attempt: The attempt's epochs given its curve; None: those of its arm.
            epochs: Epochs run so far.
            offered: The arms that may run afterwards, shape (arms,); None: all.
        """
        remaining = self._without_curve[0] if attempt is None else self._remaining_with(attempt)
        # The gain is not negative, and takes most of the time.
        if self.retry - remaining >= needed:
            return True
        value = self.horizon * self._gain(attempt, epochs, offered) - (remaining - self.retry)
        return not value < needed

    @cached_property
    def _without_curve(self) -> tuple[float, float]:
        """Expected remaining cost, and the best stopping cost."""
        cost, arms = self.cost, np.array([self.arm])
        return self._best_stop(
            cost.log_cost[arms] - cost.log_expected[self.incumbent],
            np.sqrt(cost.variance[arms] + cost.noise_sd**2),
            cost.limit_distance[arms],
        )

    def _remaining_with(self, attempt: AttemptEpochs) -> float:
        """Expected remaining cost, given the epochs of the attempt."""
        cost, arms = self.cost, np.array([self.arm])
        remaining, _ = self._best_stop(
            cost.log_epoch_cost[arms] + attempt.mean - cost.log_expected[self.incumbent],
            np.sqrt(attempt.variance + cost.epoch_cost_variance[arms]),
            np.array([(cost.log_limit - attempt.mean) / math.sqrt(attempt.variance)]),
        )
        return remaining

    def _best_stop(self, mean: Vector, spread: Vector, limit: Vector) -> tuple[float, float]:
        remaining, stop = best_stop(
            mean,
            spread,
            np.array([self.failing]),
            self.horizon,
            np.array([self.paid]),
            limit=limit,
            max_stop=self.max_stop,
            retry=self.retry,
        )
        return float(remaining[0]), float(stop[0])

    def _gain(self, attempt: AttemptEpochs | None, epochs: float, offered: Flags | None) -> float:
        """Expected saving of each later recurrence after the trial."""
        cost, spread = self.cost, None
        if attempt is not None:
            variance = float(cost.epochs_variance[self.arm]) + cost.noise_sd**2
            cost, spread = _after(cost, self.arm, attempt.beyond(math.log(epochs)), variance)
        return float(knowledge_gain(cost, self.incumbent, np.array([self.arm]), offered=offered, spread=spread)[0])


def _after(
    cost: CostPosterior, arm: int, attempt: AttemptEpochs, prior_variance: float
) -> tuple[CostPosterior, Vector]:
    """The posterior after the first part of an attempt, and the standard deviation of its result.

    All that an attempt says about the arms follows from its epochs. With k_j, the covariance of the log
    epochs of arm j and of the attempt's arm, and V and τ², the variances of the attempt's log epochs
    before it and now, the log epochs of arm j have moved by k_j/V times the move of the attempt's, their
    covariance is reduced by k_i·k_j·(1 − τ²/V)/V, and the end of the attempt will move them by k_j·τ/V
    standard deviations.
    """
    shared = cost.epochs_covariance[:, arm]
    move = shared * ((attempt.mean - cost.log_epochs[arm]) / prior_variance)
    left = min(attempt.variance / prior_variance, 1.0)
    reduction = np.outer(shared, shared) * ((1 - left) / prior_variance)
    moved = replace(
        cost,
        log_cost=cost.log_cost + move,
        log_epochs=cost.log_epochs + move,
        covariance=cost.covariance - reduction,
        epochs_covariance=cost.epochs_covariance - reduction,
    )
    # knowledge_gain divides the covariance with the arm, which is now smaller, by the spread of the result.
    own = float(shared[arm])
    spread = (prior_variance - own * (1 - left)) / math.sqrt(prior_variance * max(left, 1e-9))
    return moved, np.array([spread])
