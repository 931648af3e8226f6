import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.cost_posterior import CostPosterior, cost_posterior
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, PartialObservation, ReviewingPolicy
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome

SIZES = (8, 16, 32, 64, 128)
DRAWS = 4000


def run(recurrence: int, size: int, epochs: float, outcome: Outcome = Outcome.REACHED, **more: Any) -> Observation:
    """A run with epochs of 100 J and 1 s."""
    observation = Observation(recurrence, 0, size, outcome, epochs, epochs * 100.0, epochs, 100.0, "A", 100.0, 1.0)
    return replace(observation, **more)


def context(observations: list[Observation], **more: Any) -> DecisionContext:
    given: dict[str, Any] = {
        "eta": 0.5,
        "recurrence": max((o.recurrence for o in observations), default=-1) + 1,
        "attempt": 0,
        "seed": 3,
        "gpu_model": "A",
        "target": RunTarget("accuracy", 0.9),
        **more,
    }
    return DecisionContext(SIZES, 32, observations=tuple(observations), **given)


def decided(observations: list[Observation], **more: Any) -> Decision:
    return ThompsonSamplingPolicy(describe_arms=False).decide(context(observations, **more))


HISTORY = [run(0, 32, 10), run(1, 16, 11), run(2, 64, 10), run(3, 32, 11)]


def posterior(**more: Any) -> CostPosterior:
    decision_context = context(HISTORY, **more)
    policy = ThompsonSamplingPolicy()
    found = cost_posterior(
        policy._posterior(decision_context), decision_context.gpu_model, max_epochs=decision_context.max_epochs
    )
    assert found is not None
    return found


def samples(cost: CostPosterior) -> np.ndarray[Any, np.dtype[np.float64]]:
    generator = np.random.default_rng(1)
    return np.array([cost.sample(generator) for _ in range(DRAWS)])


@pytest.mark.parametrize("gpu_model", ["A", "B"])
def test_samples_have_the_mean_and_covariance_of_the_posterior_on_each_gpu_model(gpu_model: str) -> None:
    cost = posterior(gpu_model=gpu_model)
    drawn = samples(cost)
    errors = np.sqrt(cost.variance / DRAWS)
    assert np.abs(drawn.mean(axis=0) - cost.log_cost) == pytest.approx(np.zeros(5), abs=4 * errors.max())
    scale = np.sqrt(np.outer(cost.variance, cost.variance))
    assert (np.cov(drawn.T) - cost.covariance) / scale == pytest.approx(np.zeros((5, 5)), abs=0.12)


def test_a_sample_beyond_the_limit_of_epochs_costs_more_than_its_epochs() -> None:
    limited, unlimited = samples(posterior(max_epochs=12)), samples(posterior())
    assert (limited.mean(axis=0) > unlimited.mean(axis=0)).all()


def test_an_arm_runs_as_often_as_it_is_the_cheapest_in_the_posterior() -> None:
    cost = posterior()
    cheapest = np.random.default_rng(2).multivariate_normal(cost.log_cost, cost.covariance, DRAWS).argmin(axis=1)
    expected = np.bincount(cheapest, minlength=5) / DRAWS
    chosen = Counter(decided(HISTORY, seed=seed).batch_size for seed in range(800))
    assert [chosen[size] / 800 for size in SIZES] == pytest.approx(expected.tolist(), abs=0.07)


def test_the_same_seed_draws_the_same_arm_and_seeds_beside_a_running_attempt_draw_different_ones() -> None:
    beside = {"running": (Configuration(32),)}
    draws = [decided(HISTORY, seed=seed, **beside) for seed in range(20)]
    assert draws == [decided(HISTORY, seed=seed, **beside) for seed in range(20)]
    assert {each.kind for each in draws} == {ChoiceKind.SAMPLE}
    assert len({each.batch_size for each in draws}) > 1


def test_the_default_runs_first() -> None:
    decision = decided([])
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (32, ChoiceKind.DEFAULT, None)


def test_an_arm_that_is_excluded_diverged_or_crashed_too_often_is_never_drawn() -> None:
    crashes = [run(4 + i, 128, 0, Outcome.CRASHED) for i in range(3)]
    history = [*HISTORY, *crashes, run(7, 8, 1, Outcome.DIVERGED)]
    excluded = (Configuration(64),)
    assert {decided(history, seed=seed, excluded=excluded).batch_size for seed in range(200)} <= {16, 32}


def test_an_arm_that_was_exhausted_in_the_recurrence_is_not_its_retry() -> None:
    history = [*HISTORY, run(4, 64, 20, Outcome.EXHAUSTED)]
    retries = {decided(history, recurrence=4, attempt=1, seed=seed).batch_size for seed in range(100)}
    assert 64 not in retries


def test_an_attempt_stops_at_twice_the_cost_of_the_incumbent_and_a_late_start_is_free() -> None:
    policy = ThompsonSamplingPolicy()
    decision_context = context(HISTORY)
    decision = policy.decide(decision_context)
    known = [arm.mean_cost_joules for arm in decision.arms if arm.observations and arm.mean_cost_joules is not None]
    assert decision.stop_cost_joules == pytest.approx(2 * min(known))
    assert isinstance(policy, ReviewingPolicy)
    progress = PartialObservation(decision.batch_size, 2.0, 200.0, 2.0, 100.0, 100.0, 1.0)
    assert policy.review(decision_context, decision, progress) == pytest.approx(decision.stop_cost_joules)


def test_an_untried_arm_stays_limited_after_a_stop_and_a_known_one_does_not() -> None:
    policy = ThompsonSamplingPolicy()
    history = [*HISTORY, run(4, 128, 22, Outcome.STOPPED), run(5, 32, 22, Outcome.STOPPED)]
    inputs = policy._decision_inputs(context(history))
    assert inputs is not None
    assert policy._stop_cost_joules(inputs, SIZES.index(128)) is not None
    assert policy._stop_cost_joules(inputs, SIZES.index(32)) is None


@pytest.mark.parametrize("best", SIZES)
def test_it_converges_on_the_cheapest_arm(best: int) -> None:
    history: list[Observation] = []
    policy = ThompsonSamplingPolicy(describe_arms=False)
    chosen = []
    for recurrence in range(40):
        size = policy.decide(context(history, seed=recurrence)).batch_size
        chosen.append(size)
        epochs = 10 * 2 ** abs(math.log2(size / best)) * (1 + 0.02 * (recurrence % 3))
        history.append(run(recurrence, size, round(epochs)))
    assert set(chosen[-10:]) == {best}
