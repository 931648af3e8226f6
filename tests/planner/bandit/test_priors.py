"""Epochs that are predicted for batch sizes that never ran."""

import csv
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.gaussian_process import condition_mixture, conditioned
from wattloop_planner.bandit.posterior import Posterior
from wattloop_planner.bandit.priors import best_limit_prior
from wattloop_planner.observations import Observation, Outcome

SIZES = tuple(2**i for i in range(5, 15))
DEFAULT = 1024
NUMBERS = st.floats(-3, 3)
TRACES = Path(__file__).parents[2] / "data/zeus-traces"


def predicted(epochs: dict[int, float]) -> dict[int, float]:
    """Predicted epochs of every size after eight runs of some."""
    posterior = Posterior(ConfigurationSpace(SIZES, DEFAULT), 0.5)
    for i, (size, value) in enumerate([*epochs.items()] * 8):
        posterior.update(Observation(i, 0, size, Outcome.REACHED, value, value, value, 300.0, "A", 1.0, 1.0))
    mean, _, _ = posterior.epochs()
    return {size: math.exp(each) for size, each in zip(SIZES, mean, strict=True)}


def test_epochs_that_fall_with_the_batch_size_are_expected_to_level_off() -> None:
    expected = predicted({1024: 77, 512: 42, 256: 30})
    assert 1 < expected[256] / expected[128] < 1.3


def test_equal_epochs_are_expected_to_remain_equal_nearby() -> None:
    expected = predicted({1024: 4, 2048: 4, 4096: 4})
    assert expected[8192] == pytest.approx(4, rel=0.2)
    assert expected[512] == pytest.approx(4, rel=0.2)


def test_epochs_that_grow_with_the_batch_size_are_expected_to_grow_further() -> None:
    expected = predicted({1024: 10, 2048: 18, 4096: 34})
    assert expected[8192] > 50


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_predictions_scale_with_the_epochs(unit: float) -> None:
    plain, scaled = (predicted({1024: 77 * factor, 512: 42 * factor}) for factor in (1.0, unit))
    assert {size: each / unit for size, each in scaled.items()} == pytest.approx(plain, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=4),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(st.sampled_from([0.0, 0.5, 4.0]), min_size=3, max_size=3),
    st.floats(0.1, 2),
)
def test_a_mixture_weighs_its_components_by_their_likelihood(
    rows: list[list[float]], values: list[float], precisions: list[float], sd: float
) -> None:
    means, observed = np.array(rows), np.array(precisions) > 0
    covariance = sd**2 * (np.eye(3) + 0.5)
    targets, given_precisions = np.array(values), np.array(precisions)
    likelihoods = np.ones(len(means))
    if observed.any():
        noisy = covariance[np.ix_(observed, observed)] + np.diag(1 / given_precisions[observed])
        # Of the logarithm of the density, what the shapes do not have in common.
        apart = targets[observed] - means[:, observed]
        logs = [-each @ np.linalg.solve(noisy, each) / 2 for each in apart]
        likelihoods = np.exp(np.array(logs) - max(logs))
    weights = likelihoods / likelihoods.sum()
    parts = [conditioned(mean, covariance, targets, given_precisions) for mean in means]
    mean = sum(weight * part for weight, (part, _) in zip(weights, parts, strict=True))
    spread = sum(w * (c + np.outer(m - mean, m - mean)) for w, (m, c) in zip(weights, parts, strict=True))
    found_mean, found_covariance = condition_mixture(means, covariance, targets, given_precisions)
    assert found_mean == pytest.approx(mean, abs=1e-8)
    assert found_covariance == pytest.approx(spread, abs=1e-8)


@pytest.mark.parametrize("eta", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("gpu", ["a40", "v100"])
def test_the_interval_of_90_percent_holds_what_the_best_limit_saves(gpu: str, eta: float) -> None:
    measured: dict[tuple[str, ...], dict[float, tuple[float, float]]] = defaultdict(dict)
    with (TRACES / f"summary_power_{gpu}.csv").open() as stream:
        for row in csv.DictReader(stream):
            point = float(row["time_per_epoch"]), float(row["average_power"])
            measured[row["dataset"], row["network"], row["batch_size"]][float(row["power_limit"])] = point
    held = 0
    for points in measured.values():
        highest = max(points)
        costs = {limit: (eta * power + (1 - eta) * highest) * time for limit, (time, power) in points.items()}
        prior = best_limit_prior(eta, points[highest][1] / highest)
        held += abs(math.log(min(costs.values()) / costs[highest]) - prior.mean) <= 1.645 * prior.sd
    assert held / len(measured) >= 0.8
