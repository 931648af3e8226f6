"""The upper bound of the cost of an attempt, relative to the incumbent's expected cost."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.named_policies import FixedPolicy
from wattloop_planner.bandit.policy import Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome

REACHED, STOPPED, EXHAUSTED = Outcome.REACHED, Outcome.STOPPED, Outcome.EXHAUSTED
SIZES = (16, 32, 64, 128, 256)


def run(recurrence: int, size: int, epochs: float, outcome: Outcome = REACHED, attempt: int = 0) -> Observation:
    return Observation(recurrence, attempt, size, outcome, epochs, epochs * 100, epochs, 100.0, "A", 100.0, 1.0)


def context(observations: list[Observation], **more: Any) -> DecisionContext:
    recurrence = max((o.recurrence for o in observations), default=-1) + 1
    given: dict[str, Any] = {"recurrence": recurrence, "attempt": 0, "seed": 3, "max_epochs": 100, **more}
    return DecisionContext(SIZES, 64, eta=1.0, observations=tuple(observations), gpu_model="A", **given)


def incumbent_cost(decision: Decision) -> float:
    (cost,) = (arm.mean_cost_joules for arm in decision.arms if arm.configuration == decision.incumbent)
    assert cost is not None
    return cost


def test_a_review_keeps_the_ratio() -> None:
    policy, history = ThompsonSamplingPolicy(max_cost_ratio=1.1), [run(0, 64, 40)]
    decision = policy.decide(context(history))
    progress = PartialObservation(decision.batch_size, 1.0, 20.0, 1.0, 100.0, 20.0, 1.0)
    stop = policy.review(context(history), decision, progress)
    assert stop <= 1.1 * incumbent_cost(decision) * (1 + 1e-9)


def test_the_incumbent_stops_at_the_ratio_and_its_retry_has_no_stop() -> None:
    history = [run(i, 64, 40 + i % 3) for i in range(5)]
    policy = ThompsonSamplingPolicy(max_cost_ratio=1.5)
    first = policy.decide(context(history, remaining_recurrences=0))
    assert first.stop_cost_joules == pytest.approx(1.5 * 4100, rel=0.05)
    stopped = [*history, run(5, 64, 61, STOPPED)]
    retry = policy.decide(context(stopped, recurrence=5, attempt=1, remaining_recurrences=0))
    assert (retry.batch_size, retry.stop_cost_joules) == (64, None)


def test_the_retry_after_a_stopped_trial_stops_at_the_ratio() -> None:
    history = [*(run(i, 64, 40) for i in range(5)), run(5, 32, 60, STOPPED)]
    policy = ThompsonSamplingPolicy(max_cost_ratio=1.5)
    retry = policy.decide(context(history, recurrence=5, attempt=1))
    assert retry.batch_size == 64
    assert retry.stop_cost_joules == pytest.approx(6000, rel=0.1)
    twice = [*history, run(5, 64, 61, STOPPED, attempt=1)]
    assert policy.decide(context(twice, recurrence=5, attempt=2)).stop_cost_joules is None


def test_a_job_that_becomes_three_times_as_expensive_still_reaches_its_target() -> None:
    policy, history = ThompsonSamplingPolicy(max_cost_ratio=1.5), [run(i, 64, 20) for i in range(20)]
    attempts = []
    for recurrence in range(20, 40):
        for attempt in range(6):
            decision = policy.decide(context(history, recurrence=recurrence, attempt=attempt))
            stop = math.inf if decision.stop_cost_joules is None else decision.stop_cost_joules
            outcome = REACHED if stop >= 6000 else STOPPED
            history.append(run(recurrence, decision.batch_size, min(60, stop / 100), outcome, attempt))
            if outcome is REACHED:
                attempts.append(attempt)
                break
    assert len(attempts) == 20
    assert max(attempts[5:]) <= 1


def test_the_default_policy_stops_at_the_ratio_of_its_mean_cost() -> None:
    history = [run(0, 64, 10), run(1, 64, 20), run(2, 64, 90, EXHAUSTED), run(2, 64, 15, attempt=1)]
    policy = FixedPolicy(max_cost_ratio=2.0)
    assert policy.decide(context([])).stop_cost_joules is None
    assert policy.decide(context(history)).stop_cost_joules == pytest.approx(3000)
    assert FixedPolicy().decide(context(history)).stop_cost_joules is None
    stopped = [*history, run(3, 64, 30, STOPPED)]
    assert policy.decide(context(stopped, recurrence=3, attempt=1)).stop_cost_joules is None


def latest_outcome(history: list[Observation], batch_size: int) -> Outcome:
    return next(each.outcome for each in reversed(history) if each.batch_size == batch_size)


@pytest.mark.parametrize("epochs", [1, 30])
@pytest.mark.parametrize("next_recurrence", [False, True])
def test_the_only_size_that_reaches_is_never_stopped_twice_in_a_row(epochs: float, next_recurrence: bool) -> None:
    stopped = [run(0, 64, 10), run(1, 64, epochs, STOPPED)]
    index = {"recurrence": 2} if next_recurrence else {"recurrence": 1, "attempt": 1}
    for policy in (ThompsonSamplingPolicy(max_cost_ratio=2.0), FixedPolicy(max_cost_ratio=2.0)):
        decision = policy.decide(context(stopped, remaining_recurrences=0, **index))
        assert (decision.batch_size, decision.stop_cost_joules) == (64, None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(SIZES), st.floats(1, 100), st.sampled_from([REACHED, REACHED, STOPPED, EXHAUSTED])),
        max_size=20,
    ),
    st.floats(1.01, 5),
)
def test_no_first_attempt_exceeds_the_ratio_unless_the_latest_with_its_arm_was_stopped(
    runs: list[Any], ratio: float
) -> None:
    history = [run(i, size, epochs, outcome) for i, (size, epochs, outcome) in enumerate(runs)]
    policy = ThompsonSamplingPolicy(max_cost_ratio=ratio)
    decision = policy.decide(context(history))
    if not decision.arms:
        return
    if decision.stop_cost_joules is None:
        assert latest_outcome(history, decision.batch_size) is STOPPED
        return
    assert decision.stop_cost_joules <= ratio * incumbent_cost(decision) * (1 + 1e-9)
    beside = policy.decide(replace(context(history), running=(Configuration(decision.batch_size),)))
    assert beside.stop_cost_joules is not None or latest_outcome(history, beside.batch_size) is STOPPED
