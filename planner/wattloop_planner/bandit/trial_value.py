"""What a trial of an arm is worth and what it takes, in units of the incumbent's expected cost of one recurrence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wattloop_planner.bandit.cost_posterior import CostPosterior
from wattloop_planner.bandit.gaussian_process import Indices, Vector

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
FEW_NODES, FEW_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
FEW_WEIGHTS = FEW_WEIGHTS / FEW_WEIGHTS.sum()
STOPS = np.geomspace(0.9, 2.2, 12)
MAX_LOG = 60.0

Array = NDArray[np.float64]


def knowledge_gain(cost: CostPosterior, incumbent: int, arms: Indices, repeats: int = 1) -> Vector:
    """What one recurrence later on saves, on average, once these arms have been tried.

    The knowledge gradient for correlated beliefs (Frazier, Powell and Dayanik 2009) with the expected cost as the
    objective: a trial of arm i moves the mean of arm j by b_ij·Z, Z standard normal, and afterwards the arm of least
    expected cost is run. The expectation over Z is a Gauss–Hermite sum.

    Args:
        cost: What is believed.
        incumbent: The arm that is run otherwise; its expected cost is the unit.
        arms: The arms to try, (tried,).
        repeats: How often each is tried.
    """
    noise = cost.noise_sd**2
    spread = np.sqrt(cost.variance[arms] + noise / repeats)
    moves = cost.covariance[:, arms] / spread
    rest = cost.log_expected - cost.log_expected[incumbent]
    logs = (rest[:, None] - moves**2 / 2)[:, :, None] + moves[:, :, None] * NODES
    costs = np.exp(np.minimum(logs, MAX_LOG))
    gain: Vector = (costs[incumbent] - costs.min(axis=0)) @ WEIGHTS
    return gain


def best_stop(mean: Array, spread: Array, failing: Array, horizon: float, paid: Array) -> tuple[Array, Array]:
    """Where to stop a run, and what it is then expected to take, a rerun with the incumbent included.

    With C log-normal (mean and spread of its log) above what is paid already, or infinite with the probability
    ``failing``, the stop S minimises E[min(C, S)] − paid + P(C > S) + horizon·E[(1 − C)⁺; C > S]: what the run takes,
    the incumbent's run after it is stopped, and what stopping too early loses in every recurrence to come.

    Args:
        mean: Mean of the log of the run's cost, any shape.
        spread: Standard deviation of it, the noise between runs included.
        failing: Probability, before anything is paid, that the run never reaches the target.
        horizon: Recurrences to come.
        paid: What has been paid.

    Returns:
        The expected cost still to come, and the stop.
    """
    stops = np.maximum(STOPS, paid[..., None])
    at_stop = (np.log(stops) - mean[..., None]) / spread[..., None]
    at_paid = (np.log(np.maximum(paid, 1e-9)) - mean) / spread
    whole = np.exp(np.minimum(mean + spread**2 / 2, MAX_LOG))
    alive = np.maximum(ndtr(-at_paid), 1e-9)
    mass_below = ndtr(at_stop - spread[..., None])
    below = whole[..., None] * (mass_below - ndtr(at_paid - spread)[..., None]) / alive[..., None]
    above = np.minimum(ndtr(-at_stop) / alive[..., None], 1.0)
    never = (failing / (failing + (1 - failing) * alive))[..., None]
    taken = (1 - never) * (below + stops * above) + never * stops - paid[..., None]
    stopped = (1 - never) * above + never
    at_one = -mean / spread
    improvement = ndtr(at_one) - whole * ndtr(at_one - spread)
    seen = ndtr(at_stop) - whole[..., None] * mass_below
    lost = np.where(at_stop < at_one[..., None], improvement[..., None] - seen, 0.0)
    whole_cost = taken + stopped
    index = np.argmin(whole_cost + horizon * np.maximum(lost, 0.0), axis=-1).ravel()
    rows = np.arange(index.size)
    remaining = whole_cost.reshape(index.size, -1)[rows, index].reshape(mean.shape)
    return remaining, stops.reshape(index.size, -1)[rows, index].reshape(mean.shape)


def probe_option(cost: CostPosterior, incumbent: int, arms: Indices, failing: Array, horizon: float) -> Vector:
    """What it is worth to be able to give up after the first epoch, when the epoch cost has become known.

    The expectation over the epoch cost of max(net value of going on, −first epoch) above the net value without the
    choice, the net value of going on being horizon·E[(1 − C)⁺] less what the run takes.

    Args:
        cost: What is believed.
        incumbent: The unit.
        arms: Arms whose epoch cost is not known, (arms,).
        failing: Their probability of never reaching the target, (arms,).
        horizon: Recurrences to come.
    """
    unit = cost.log_expected[incumbent]
    shift = np.sqrt(cost.epoch_cost_variance[arms])[:, None] * FEW_NODES
    mean = cost.log_cost[arms][:, None] - unit + shift
    spread = np.broadcast_to(np.sqrt(cost.epochs_variance[arms] + cost.noise_sd**2)[:, None], mean.shape)
    never = np.broadcast_to(failing[:, None], mean.shape)
    remaining, _ = best_stop(mean, spread, never, horizon, np.zeros_like(mean))
    at_one = -mean / spread
    whole = np.exp(np.minimum(mean + spread**2 / 2, MAX_LOG))
    net = horizon * (ndtr(at_one) - whole * ndtr(at_one - spread)) - (remaining - 1)
    first_epoch = np.exp(np.minimum(cost.log_epoch_cost[arms][:, None] - unit + shift, MAX_LOG))
    option: Vector = (np.maximum(net, -first_epoch) - net) @ FEW_WEIGHTS
    return option
