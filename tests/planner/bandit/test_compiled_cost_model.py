"""The compiled model of costs agrees with its formulas in NumPy and SciPy, and rejects invalid arrays."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from wattloop_planner.bandit import _cost_model
from wattloop_planner.bandit.cost_posterior import CostPosterior
from wattloop_planner.bandit.gaussian_process import condition_by_elimination, condition_mixture, conditioned
from wattloop_planner.bandit.trial_value import FEW_NODES_RULE, RULE, STOPS, RunningTrial, best_stop, knowledge_gain

MAX_LOG = 60.0
NODES, WEIGHTS = RULE.reshape(2, -1)
FEW_NODES, FEW_WEIGHTS = FEW_NODES_RULE.reshape(2, -1)


def some_covariance(generator: np.random.Generator, arms: int, sd: float) -> Any:
    root = generator.normal(0, sd, (arms, arms))
    return root @ root.T / arms + 1e-4 * np.eye(arms)


def some_posterior(seed: int) -> CostPosterior:
    generator = np.random.default_rng(seed)
    arms = 2 + seed % 11
    epochs_covariance, epoch_costs = some_covariance(generator, arms, 0.4), some_covariance(generator, arms, 0.1)
    log_epochs, log_epoch_cost = generator.normal(3, 0.4, arms), generator.normal(8, 0.3, arms)
    return CostPosterior(
        log_cost=log_epochs + log_epoch_cost,
        covariance=epochs_covariance + epoch_costs,
        log_epochs=log_epochs,
        epochs_covariance=epochs_covariance,
        log_epoch_cost=log_epoch_cost,
        epoch_cost_covariance=epoch_costs,
        epochs_share=np.ones(arms),
        noise_sd=0.1,
        epoch_cost_noise_sd=0.0,
        measured=np.zeros(arms, dtype=np.bool_),
        level_known=True,
        log_limit=(math.inf, 4.0, 3.2, 2.5)[seed % 4],
    )


def log_attempt_factor(log_epochs: Any, spread: Any, log_limit: float) -> Any:
    distance = (log_limit - log_epochs) / spread
    exhausted = np.exp(np.minimum(log_limit - log_epochs - spread**2 / 2, MAX_LOG)) * ndtr(-distance)
    return np.log(np.maximum(ndtr(distance - spread) + exhausted, 1e-300))


def expected_gain(cost: CostPosterior, incumbent: int, arm: int, offered: Any, spread: float) -> float:
    """The formula of `knowledge_gain`; arrays have the shape (arms, nodes)."""
    noise, moves = cost.noise_sd**2, cost.covariance[:, arm, None] / spread
    unlimited = cost.log_cost + (cost.variance + noise) / 2
    changes = moves * NODES - moves**2 / 2
    costs = np.exp(np.minimum((unlimited - unlimited[incumbent])[:, None] + changes, MAX_LOG))
    gain = float((costs[incumbent] - costs[offered].min(axis=0)) @ WEIGHTS)
    if not cost.is_limited:
        return gain
    moved = cost.epochs_covariance[:, arm, None] / spread
    spreads = np.sqrt(np.maximum(cost.epochs_variance[:, None] - moved**2, 0.0) + noise) * np.ones(len(NODES))
    log_epochs = cost.log_epochs[:, None] + moved * NODES
    attempts = (unlimited - cost.log_expected[incumbent])[:, None] + changes
    attempts += log_attempt_factor(log_epochs, spreads, cost.log_limit)
    costs = np.exp(np.minimum(attempts, MAX_LOG)) + ndtr(-(cost.log_limit - log_epochs) / spreads)
    exhausted = cost.limit_distance[arm] < NODES
    unknown = costs @ np.where(exhausted, WEIGHTS, 0.0)
    seen = np.where(exhausted, 0.0, costs[incumbent] - costs[offered].min(axis=0)) @ WEIGHTS
    limited = float(seen + unknown[incumbent] - unknown[offered].min())
    return min(limited, gain) if cost.limit_distance[arm] < cost.limit_distance[incumbent] else limited


def costs_of_stops(
    mean: float, spread: float, failing: float, horizon: float, paid: float, limit: float, max_stop: float, retry: float
) -> tuple[Any, Any, Any]:
    """The formula of `best_stop`: remaining costs, values to minimise and stopping costs, of each stop."""
    nominal = np.maximum(np.minimum(STOPS, max_stop), paid)
    stops = np.maximum(np.minimum(nominal, math.exp(min(mean + spread * limit, MAX_LOG))), paid)
    at_stop, at_paid = (np.log(stops) - mean) / spread, (math.log(max(paid, 1e-9)) - mean) / spread
    expected, alive = math.exp(mean + spread**2 / 2), max(ndtr(-at_paid), 1e-9)
    below = expected * (ndtr(at_stop - spread) - ndtr(at_paid - spread)) / alive
    above = np.minimum(ndtr(-at_stop) / alive, 1.0)
    never = failing / (failing + (1 - failing) * alive)
    taken = (1 - never) * (below + stops * above) + never * stops - paid
    at_one = min(-mean / spread, limit)
    improvement = ndtr(at_one) - expected * ndtr(at_one - spread)
    lost = np.where(at_stop < at_one, improvement - (ndtr(at_stop) - expected * ndtr(at_stop - spread)), 0.0)
    remaining = taken + retry * ((1 - never) * above + never)
    return remaining, remaining + horizon * np.maximum(lost, 0.0), nominal


def test_the_normal_distribution_is_that_of_scipy() -> None:
    values = [*np.linspace(-60, 60, 997).tolist(), -math.inf, math.inf]
    assert [_cost_model.normal_cdf(x) for x in values] == pytest.approx(ndtr(values), rel=1e-12, abs=1e-300)
    assert [_cost_model.log_normal_cdf(x) for x in values] == pytest.approx(log_ndtr(values), rel=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_expected_costs_and_the_saving_after_a_trial_are_those_of_the_formulas(seed: int) -> None:
    cost = some_posterior(seed)
    spread = np.sqrt(cost.epochs_covariance.diagonal() + cost.noise_sd**2)
    distance = (cost.log_limit - cost.log_epochs) / spread
    expected = cost.log_cost + (cost.covariance.diagonal() + cost.noise_sd**2) / 2
    if distance.min() < 6:
        expected += log_attempt_factor(cost.log_epochs, spread, cost.log_limit) - log_ndtr(distance)
    assert cost.is_limited == (distance.min() < 6)
    assert cost.log_expected == pytest.approx(expected, rel=1e-12)
    assert cost.reach_probability == pytest.approx(ndtr(distance), rel=1e-12)
    incumbent, offered = int(np.argmin(cost.log_expected)), np.arange(len(distance)) != 0
    for arm in range(len(distance)):
        own = math.sqrt(cost.variance[arm] + cost.noise_sd**2)
        found, formula = knowledge_gain(cost, incumbent, arm, offered), expected_gain
        assert found == pytest.approx(formula(cost, incumbent, arm, offered, own), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_stop_has_the_least_cost_by_the_formula(seed: int) -> None:
    generator = np.random.default_rng(seed)
    mean, spread, failing = generator.normal(0, 0.4), generator.uniform(0.05, 0.9), generator.uniform(0.01, 0.3)
    horizon, paid, retry = 20.0, (0.0, generator.uniform(0, 2))[seed % 2], 1 + generator.uniform(0, 1)
    limit, max_stop = ((math.inf, math.inf), (0.7, math.inf), (math.inf, 1.4))[seed % 3]
    remaining, values, stops = costs_of_stops(mean, spread, failing, horizon, paid, limit, max_stop, retry)
    bounds = {"limit": limit, "max_stop": max_stop, "retry": retry}
    found, stop = best_stop(mean, spread, failing, horizon, paid, **bounds)
    (places,) = np.nonzero(stops == stop)
    assert min(values[places]) == pytest.approx(min(values), abs=1e-12)
    assert min(abs(remaining[places] - found)) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_the_option_to_stop_after_the_first_epoch_is_that_of_the_formula(seed: int) -> None:
    cost, horizon, retry = some_posterior(seed), 10.0, 1.2
    unit, arm = float(cost.log_expected[0]), len(cost.log_cost) - 1
    spread = math.sqrt(cost.epochs_variance[arm] + cost.noise_sd**2)
    value = 0.0
    for shift, weight in zip(math.sqrt(cost.epoch_cost_variance[arm]) * FEW_NODES, FEW_WEIGHTS, strict=True):
        mean, limit = cost.log_cost[arm] - unit + shift, float(cost.limit_distance[arm])
        remaining, values, _ = costs_of_stops(mean, spread, 0.08, horizon, 0.0, limit, math.inf, retry)
        at_one = min(-mean / spread, limit)
        improvement = ndtr(at_one) - math.exp(mean + spread**2 / 2) * ndtr(at_one - spread)
        net = horizon * improvement - (remaining[values.argmin()] - 1)
        first_epoch = math.exp(cost.log_epoch_cost[arm] - unit + shift) + retry - 1
        value += weight * (max(net, -first_epoch) - net)
    trial = RunningTrial(cost, 0, arm, paid=0.0, failing=0.08, horizon=horizon, retry=retry)
    assert trial.probe_option() == pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("components", [1, 140])
def test_a_mixture_is_conditioned_as_by_elimination(components: int) -> None:
    generator = np.random.default_rng(components)
    means, covariance = generator.normal(0, 0.3, (components, 12)), some_covariance(generator, 12, 1.0) + 4
    precisions = np.where(np.arange(12) % 3, generator.choice([4.0, 1e6], 12), 0.0)
    values = generator.normal(0, 0.3, 12)
    found = condition_mixture(means, covariance, values, precisions)
    for one, other in zip(found, condition_by_elimination(means, covariance, values, precisions), strict=True):
        assert one == pytest.approx(other, abs=1e-8)


def test_a_covariance_that_rounding_made_indefinite_is_conditioned_too() -> None:
    covariance, precisions = np.array([[1.0, 1.5], [1.5, 1.0]]), np.array([1e6, 1e6])
    found = np.empty(2), np.empty((2, 2))
    assert not _cost_model.condition_mixture(np.zeros((1, 2)), covariance, np.ones(2), precisions, *found)
    mean, _ = conditioned(np.zeros(2), covariance, np.ones(2), precisions)
    assert mean == pytest.approx([1.0, 1.0], abs=1e-5)


def test_invalid_arrays_are_rejected() -> None:
    given = some_posterior(3).compiled
    arms = len(given[0])
    with pytest.raises(ValueError, match=f"covariance: expected {arms * arms} items, found {arms}"):
        _cost_model.expected_costs(given[0], given[0], *given[2:7])
    with pytest.raises(TypeError, match="log_epochs: expected float64 items"):
        _cost_model.expected_costs(*given[:2], np.zeros(arms, dtype=np.int64), *given[3:7])  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="no such arm"):
        _cost_model.knowledge_gain(*given, np.ones(arms, dtype=np.bool_), 0, arms, 1.0, RULE)
    with pytest.raises(ValueError, match=f"offered: expected {arms} flags"):
        _cost_model.knowledge_gain(*given, np.ones(arms - 1, dtype=np.bool_), 0, 0, 1.0, RULE)
    two = np.zeros(2)
    with pytest.raises(ValueError, match="means: expected rows of as many items as precisions"):
        _cost_model.condition_mixture(np.zeros((1, 3)), np.eye(2), two, two, np.zeros(2), np.eye(2))
    frozen = np.eye(2)
    frozen.setflags(write=False)
    with pytest.raises((BufferError, ValueError), match=r"read-only|writable|not writeable"):
        _cost_model.condition_mixture(np.zeros((1, 2)), np.eye(2), two, two, np.zeros(2), frozen)
