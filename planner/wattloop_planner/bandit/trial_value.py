"""Value and cost of a trial, in units of the incumbent's expected cost of one recurrence.

`native/trial_value.c` computes the formulas: a decision takes them of a few arms, for which calls of NumPy take longer
than the arithmetic. tests/planner/bandit/test_compiled_cost_model.py has them in NumPy.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wattloop_planner.bandit import _cost_model
from wattloop_planner.bandit.cost_posterior import CostPosterior
from wattloop_planner.bandit.curve_model import AttemptEpochs
from wattloop_planner.bandit.gaussian_process import Flags, Vector


def _gauss_hermite(nodes: int) -> Vector:
    """Nodes of the rule for a standard normal variable, then their weights."""
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return np.concatenate((places, weights / weights.sum()))


RULE = _gauss_hermite(9)
FEW_NODES_RULE = _gauss_hermite(5)
STOPS = np.geomspace(0.9, 2.2, 12)


def knowledge_gain(cost: CostPosterior, incumbent: int, arm: int, offered: Flags, spread: float | None = None) -> float:
    """Expected saving of each later recurrence after a trial of an arm.

    The knowledge gradient for correlated beliefs (Frazier, Powell and Dayanik 2009) with the expected
    cost as the objective: a trial of arm i moves the mean of arm j by b_ij·Z, Z standard normal, and
    afterwards the arm of lowest expected cost runs. The expectation over Z is a Gauss–Hermite sum. With a
    limit of epochs, the cost of an arm is that of one attempt, and one incumbent run if it is exhausted.

    Args:
        cost: Posterior of the cost.
        incumbent: The arm that runs otherwise; its expected cost is the unit.
        arm: The arm to try.
        offered: The arms that may run afterwards, shape (arms,). A cheaper arm that may not run is no saving.
        spread: Standard deviation of the result of the trial; default: that of one run.
    """
    if spread is None:
        spread = math.sqrt(float(cost.variance[arm]) + cost.run_noise_sd**2)
    return _cost_model.knowledge_gain(*cost.compiled, offered, incumbent, arm, spread, RULE)


def best_stop(
    mean: float,
    spread: float,
    failing: float,
    horizon: float,
    paid: float,
    *,
    limit: float = math.inf,
    max_stop: float = math.inf,
    retry: float = 1.0,
) -> tuple[float, float]:
    """The best stopping cost of a run, and the expected remaining cost with it.

    The cost C is log-normal, conditional on exceeding the cost already paid, or infinite with the
    probability ``failing``. The stopping cost S minimises
    E[min(C, S)] − paid + retry·P(C > S) + horizon·E[(1 − C)⁺; C > S]: the cost of the run, the cost of the
    incumbent's run after a stop, and the loss in all later recurrences if the run stops too early.

    Args:
        mean: Mean of the run's log cost.
        spread: Standard deviation of the run's log cost, including the noise between runs.
        failing: Prior probability that the run never reaches the target.
        horizon: Number of later recurrences.
        paid: Cost already paid.
        limit: The limit of epochs in standard deviations above the mean log cost: a run that would cost
            more ends there, as with a stop.
        max_stop: Upper bound of the stopping cost.
        retry: Cost of the incumbent's run after a stop, which includes its start.

    Returns:
        The expected remaining cost, including the incumbent's run after a stop, and the stopping cost.
    """
    return _cost_model.best_stop(STOPS, mean, spread, failing, horizon, paid, limit, max_stop, retry)


@dataclass(frozen=True)
class RunningTrial:
    """A trial that is running or may run, and what it has cost; costs are in incumbent runs.

    A curve can end a trial earlier, never later: a run that always seems to be about to reach the target
    would otherwise have no end.

    Attributes:
        cost: Posterior of the cost before the attempt, with its epoch cost.
        incumbent: The arm that runs after a stop; its expected cost is the unit.
        paid: Cost paid so far; 0 before it runs.
        failing: Prior probability that the attempt never reaches the target.
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
    def remaining(self) -> float:
        """The expected remaining cost with the best stopping cost, without a curve."""
        return self._without_curve[0]

    @property
    def stop(self) -> float:
        """The best stopping cost, without a curve."""
        return self._without_curve[1]

    def probe_option(self) -> float:
        """Value of the option to stop after the first epoch, which shows an epoch cost that is unknown before.

        The expectation over the epoch cost of max(net value of continuing, −cost of the first epoch), minus
        the net value without the option. The net value of continuing is horizon·E[(1 − C)⁺] minus the cost of
        the run.
        """
        cost, arm, unit = self.cost, self.arm, float(self.cost.log_expected[self.incumbent])
        mean, spread = float(cost.log_cost[arm]) - unit, math.sqrt(float(cost.epochs_variance[arm]) + cost.noise_sd**2)
        limit = float(cost.limit_distance[arm])
        run = (mean, spread, self.failing, self.horizon, limit, self.max_stop, self.retry)
        epoch_cost = (float(cost.log_epoch_cost[arm]) - unit, math.sqrt(float(cost.epoch_cost_variance[arm])))
        return _cost_model.probe_option(STOPS, *run, *epoch_cost, FEW_NODES_RULE)

    def is_worth(self, needed: float, attempt: AttemptEpochs | None, epochs: float, offered: Flags) -> bool:
        """Whether the net value of continuing is at least a value.

        Args:
            needed: The value.
            attempt: The attempt's epochs given its curve; None: those of its arm.
            epochs: Epochs run so far.
            offered: The arms that may run afterwards, shape (arms,).
        """
        remaining = self.remaining if attempt is None else self._remaining_with(attempt)
        # The gain is not negative, and takes most of the time.
        if self.retry - remaining >= needed:
            return True
        value = self.horizon * self._gain(attempt, epochs, offered) - (remaining - self.retry)
        return not value < needed

    @cached_property
    def _without_curve(self) -> tuple[float, float]:
        cost, arm = self.cost, self.arm
        mean = float(cost.log_cost[arm]) - float(cost.log_expected[self.incumbent])
        spread = math.sqrt(float(cost.variance[arm]) + cost.run_noise_sd**2)
        return self._best_stop(mean, spread, float(cost.limit_distance[arm]))

    def _remaining_with(self, attempt: AttemptEpochs) -> float:
        cost, arm = self.cost, self.arm
        mean = float(cost.log_epoch_cost[arm]) + attempt.mean - float(cost.log_expected[self.incumbent])
        spread = math.sqrt(attempt.variance + float(cost.epoch_cost_variance[arm]))
        return self._best_stop(mean, spread, (cost.log_limit - attempt.mean) / math.sqrt(attempt.variance))[0]

    def _best_stop(self, mean: float, spread: float, limit: float) -> tuple[float, float]:
        bounds = {"limit": limit, "max_stop": self.max_stop, "retry": self.retry}
        return best_stop(mean, spread, self.failing, self.horizon, self.paid, **bounds)

    def _gain(self, attempt: AttemptEpochs | None, epochs: float, offered: Flags) -> float:
        if attempt is None:
            return knowledge_gain(self.cost, self.incumbent, self.arm, offered)
        variance = float(self.cost.epochs_variance[self.arm]) + self.cost.noise_sd**2
        cost, spread = _after(self.cost, self.arm, attempt.beyond(math.log(epochs)), variance)
        return knowledge_gain(cost, self.incumbent, self.arm, offered, spread)


def _after(cost: CostPosterior, arm: int, attempt: AttemptEpochs, prior_variance: float) -> tuple[CostPosterior, float]:
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
    return moved, spread
