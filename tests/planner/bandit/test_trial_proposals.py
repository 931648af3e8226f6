"""What the joint samples of policy `thompsonSampling` propose."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wattloop_planner.bandit.cost_inputs import DecisionInputs
from wattloop_planner.bandit.cost_posterior import CostPosterior
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome

SIZES = (8, 16, 32, 64, 128)
DRAWS = 4000
SEEDS = range(400)
HISTORY = [(32, 10.0), (16, 11.0), (64, 10.0), (32, 11.0)]


def context(**more: Any) -> DecisionContext:
    """After four runs with epochs of 100 J and 1 s, of which one of 16, one of 64 and two of 32."""
    runs = tuple(
        Observation(i, 0, size, Outcome.REACHED, epochs, epochs * 100.0, epochs, 100.0, "A", 100.0, 1.0)
        for i, (size, epochs) in enumerate(HISTORY)
    )
    return replace(DecisionContext(SIZES, 32, 0.5, len(runs), 0, runs, 3, gpu_model="A"), **more)


def decided(samples: int, **more: Any) -> Decision:
    return ThompsonSamplingPolicy(samples=samples, describe_arms=False).decide(context(**more))


def inputs(**more: Any) -> DecisionInputs:
    found = ThompsonSamplingPolicy()._decision_inputs(context(**more))
    assert found is not None
    return found


def worth() -> dict[int, float]:
    """The batch sizes of the trials that are worth more than they cost, and by how much."""
    values, _ = ThompsonSamplingPolicy()._trial_values(inputs())
    return {size: value for size, value in zip(SIZES, values, strict=True) if value > 0}


def drawn(cost: CostPosterior) -> np.ndarray[Any, np.dtype[np.float64]]:
    return cost.samples(np.random.default_rng(1), DRAWS)


@pytest.mark.parametrize("gpu_model", ["A", "B"])
def test_samples_have_the_mean_and_covariance_of_the_posterior_on_each_gpu_model(gpu_model: str) -> None:
    cost = inputs(gpu_model=gpu_model).cost
    samples = drawn(cost)
    errors = np.sqrt(cost.variance / DRAWS)
    assert np.abs(samples.mean(axis=0) - cost.log_cost) == pytest.approx(np.zeros(5), abs=4 * errors.max())
    scale = np.sqrt(np.outer(cost.variance, cost.variance))
    assert (np.cov(samples.T) - cost.covariance) / scale == pytest.approx(np.zeros((5, 5)), abs=0.12)


def test_a_sample_beyond_the_limit_of_epochs_costs_more_than_its_epochs() -> None:
    limited, unlimited = drawn(inputs(max_epochs=12).cost), drawn(inputs().cost)
    assert (limited.mean(axis=0) > unlimited.mean(axis=0)).all()


def test_with_one_sample_a_trial_runs_as_often_as_its_arm_is_the_cheapest_of_those_worth_their_cost() -> None:
    cost, trials = inputs().cost, [SIZES.index(size) for size in worth()]
    assert len(trials) > 1
    samples = np.random.default_rng(2).multivariate_normal(cost.log_cost, cost.covariance, DRAWS)
    expected = Counter(SIZES[trials[arm]] for arm in samples[:, trials].argmin(axis=1).tolist())
    chosen = Counter(decided(1, seed=seed).batch_size for seed in SEEDS)
    assert set(chosen) <= set(worth())
    for size in worth():
        assert chosen[size] / len(SEEDS) == pytest.approx(expected[size] / DRAWS, abs=0.09)


def test_of_the_trials_that_many_samples_propose_the_one_that_is_worth_most_runs() -> None:
    best = max(worth(), key=worth().__getitem__)
    decisions = [decided(500, seed=seed) for seed in range(10)]
    assert {(each.batch_size, each.kind) for each in decisions} == {(best, ChoiceKind.TRIAL)}
    assert "of 500 samples" in decisions[0].reason


def test_the_same_seed_repeats_a_decision_and_other_seeds_propose_other_trials() -> None:
    decisions = [decided(1, seed=seed) for seed in SEEDS]
    assert decisions[:20] == [decided(1, seed=seed) for seed in SEEDS[:20]]
    assert len({each.batch_size for each in decisions}) > 1
