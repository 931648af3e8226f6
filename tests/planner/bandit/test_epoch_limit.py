"""Decisions under a limit of epochs, and the expectations behind them."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop_planner.bandit.cost_posterior import log_limit_factor
from wattloop_planner.bandit.policy import Arm, ChoiceKind, Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome

REACHED, STOPPED, EXHAUSTED = Outcome.REACHED, Outcome.STOPPED, Outcome.EXHAUSTED
SIZES = (16, 32, 64, 128, 256)
# Joules of an epoch: a larger batch size has cheaper epochs.
EPOCH_JOULES = {16: 200.0, 32: 140.0, 64: 100.0, 128: 75.0, 256: 60.0}
# Epochs of 64 in successive runs, as measured with a small ResNet.
EPOCHS_OF_64 = (17, 15, 19, 16, 18)


def run(recurrence: int, size: int, epochs: float, outcome: Outcome = REACHED, attempt: int = 0) -> Observation:
    joules = EPOCH_JOULES[size]
    return Observation(recurrence, attempt, size, outcome, epochs, epochs * joules, epochs, 100.0, "A", joules, 1.0)


def context(observations: list[Observation], max_epochs: int | None, **more: Any) -> DecisionContext:
    recurrence = max((o.recurrence for o in observations), default=-1) + 1
    given: dict[str, Any] = {"recurrence": recurrence, "attempt": 0, "seed": 3, **more}
    return DecisionContext(
        SIZES, 64, eta=1.0, observations=tuple(observations), gpu_model="A", max_epochs=max_epochs, **given
    )


def attempts_of(needed: dict[int, tuple[float, ...]], max_epochs: int, recurrences: int) -> list[Observation]:
    """All attempts of a job whose sizes need these epochs in successive runs; others never reach the target."""
    policy, history = ThompsonSamplingPolicy(), list[Observation]()
    for recurrence in range(recurrences):
        for attempt in range(6):
            decision = policy.decide(context(history, max_epochs, recurrence=recurrence, attempt=attempt))
            size = decision.batch_size
            epochs = needed.get(size, (math.inf,))
            end = min(epochs[recurrence % len(epochs)], max_epochs)
            outcome = REACHED if epochs[recurrence % len(epochs)] <= max_epochs else EXHAUSTED
            progress = PartialObservation(size, 1.0, EPOCH_JOULES[size], 1.0, 100.0, EPOCH_JOULES[size], 1.0)
            stop = policy.review(context(history, max_epochs, recurrence=recurrence), decision, progress)
            if stop is not None and stop < end * EPOCH_JOULES[size]:
                end, outcome = max(stop / EPOCH_JOULES[size], 1.0), STOPPED
            history.append(run(recurrence, size, end, outcome, attempt))
            if outcome is REACHED or decision.last_attempt:
                break
    return history


def arms_after(history: list[Observation], max_epochs: int | None) -> dict[int, Arm]:
    return {arm.batch_size: arm for arm in ThompsonSamplingPolicy().decide(context(history, max_epochs)).arms}


def test_a_size_exhausted_at_the_limit_is_not_tried_in_each_later_recurrence() -> None:
    history = attempts_of({64: EPOCHS_OF_64}, max_epochs=20, recurrences=30)
    tried = [o.recurrence for o in history if o.batch_size == 128]
    assert len(tried) <= 2
    assert [o.outcome for o in history if o.recurrence >= 10].count(REACHED) >= 19


@pytest.mark.parametrize("recurrence", range(2, 6))
def test_an_exhausted_neighbour_is_not_tried_again_immediately(recurrence: int) -> None:
    history = [run(0, 64, 17), run(1, 128, 20, EXHAUSTED), run(1, 64, 16, attempt=1)]
    history += [run(i, 64, EPOCHS_OF_64[i % 5]) for i in range(2, recurrence)]
    assert ThompsonSamplingPolicy().decide(context(history, 20)).batch_size != 128


def test_a_size_exhausted_twice_is_tried_again_after_the_limit_was_raised() -> None:
    runs = [(64, 17, REACHED), (32, 18, REACHED), *[(size, 20, EXHAUSTED) for size in (128, 256) * 2]]
    runs += [(64, epochs, REACHED) for epochs in EPOCHS_OF_64 * 2]
    history = [run(i, size, epochs, outcome) for i, (size, epochs, outcome) in enumerate(runs)]
    limited, raised = (ThompsonSamplingPolicy().decide(context(history, limit)) for limit in (20, 40))
    assert limited.batch_size not in {128, 256}
    assert (raised.batch_size, raised.kind) == (128, ChoiceKind.TRIAL)


def test_a_cheap_size_that_fails_often_is_not_the_incumbent() -> None:
    """A run of 128 costs less, but three of four are exhausted at 20 epochs, so that it costs more in all."""
    history = [run(i, 64, 17) for i in range(6)]
    history += [run(6 + i, 128, 20, EXHAUSTED if i % 4 else REACHED) for i in range(12)]
    decision = ThompsonSamplingPolicy().decide(context(history, 20, remaining_recurrences=0))
    assert (decision.batch_size, decision.kind) == (64, ChoiceKind.INCUMBENT)


def test_a_size_that_cannot_reach_the_target_is_pruned_with_a_note_and_without_a_cost() -> None:
    history = [run(i, 64, 30) for i in range(3)] + [run(3 + i, 16, 10) for i in range(6)]
    arms = arms_after(history, 15)
    assert (arms[64].pruned, arms[64].mean_cost_joules) == (True, None)
    assert arms[64].note == "not expected to reach the target within 15 epochs"
    assert (arms[16].pruned, arms[16].note) == (False, "")
    assert not arms_after(history, 60)[64].pruned


def test_a_lowered_limit_ends_the_use_of_the_incumbent() -> None:
    history = [run(i, 64, 30) for i in range(6)] + [run(6 + i, 32, 12) for i in range(6)]
    assert ThompsonSamplingPolicy().decide(context(history, 20, remaining_recurrences=0)).batch_size == 32


def test_the_only_size_that_reaches_is_retried_after_an_exhausted_attempt() -> None:
    history = [run(i, 64, (17, 19, 15, 20, 18)[i % 5]) for i in range(10)]
    history += [run(10 + i, other, 20, EXHAUSTED) for i, other in enumerate((32, 32, 128, 128))]
    history.append(run(14, 64, 20, EXHAUSTED))
    assert ThompsonSamplingPolicy().decide(context(history, 20, recurrence=14, attempt=1)).batch_size == 64


class TestNothingReaches:
    """Decisions while no batch size has reached the target."""

    def test_each_size_is_tried_once_and_then_one_attempt_is_made_per_recurrence(self) -> None:
        history = attempts_of({}, max_epochs=20, recurrences=8)
        assert sorted(o.batch_size for o in history if o.recurrence == 0) == list(SIZES)
        assert [o.recurrence for o in history if o.recurrence > 0] == list(range(1, 8))

    def test_the_default_runs_first(self) -> None:
        assert attempts_of({}, max_epochs=20, recurrences=1)[0].batch_size == 64

    def test_after_the_default_the_next_size_runs_rather_than_the_smallest(self) -> None:
        """The smallest size is the likeliest to reach, but costs more than its probability is worth."""
        decision = ThompsonSamplingPolicy().decide(context([run(0, 64, 20, EXHAUSTED)], 20, recurrence=0, attempt=1))
        assert decision.batch_size == 32

    def test_a_size_that_reaches_late_ends_the_single_attempts(self) -> None:
        never, reached = attempts_of({}, 20, 3), run(3, 128, 19)
        decision = ThompsonSamplingPolicy().decide(context([*never, reached], 20, remaining_recurrences=0))
        assert (decision.batch_size, decision.kind, decision.last_attempt) == (128, ChoiceKind.INCUMBENT, False)

    def test_a_raised_limit_tries_every_size_again(self) -> None:
        history = [run(0, size, 20, EXHAUSTED, attempt) for attempt, size in enumerate((64, 128, 32, 256, 16))]
        assert ThompsonSamplingPolicy().decide(context(history, 20)).last_attempt
        raised = ThompsonSamplingPolicy().decide(context(history, 80))
        assert (raised.batch_size, raised.last_attempt) == (64, False)

    def test_attempts_that_always_end_before_the_limit_are_repeated_once(self) -> None:
        history = [run(i, size, 12, EXHAUSTED) for i, size in enumerate(SIZES * 2)]
        assert not ThompsonSamplingPolicy().decide(context(history[:5], 20)).last_attempt
        assert ThompsonSamplingPolicy().decide(context(history, 20)).last_attempt

    @pytest.mark.parametrize("outcome", [EXHAUSTED, STOPPED])
    def test_each_size_runs_once_before_one_repeats_also_if_attempts_end_before_the_limit(
        self, outcome: Outcome
    ) -> None:
        history: list[Observation] = []
        for attempt, epochs in enumerate((7, 9, 4, 12, 7)):
            decision = ThompsonSamplingPolicy().decide(context(history, 60, recurrence=0, attempt=attempt))
            assert not decision.last_attempt
            history.append(run(0, decision.batch_size, epochs, outcome, attempt))
        assert history[0].batch_size == 64
        assert {each.batch_size for each in history} == set(SIZES)

    def test_the_only_batch_size_is_retried_once(self) -> None:
        contexts = [
            replace(context(history, 20), batch_sizes=(64,))
            for history in ([], [run(0, 64, 20, EXHAUSTED)], [run(i, 64, 20, EXHAUSTED) for i in range(2)])
        ]
        decisions = [ThompsonSamplingPolicy().decide(each) for each in contexts]
        assert [each.last_attempt for each in decisions] == [False, True, True]

    def test_an_unlikely_size_is_not_tried(self) -> None:
        """Another job needed 300 epochs with the smallest size, far more than the 20 of an attempt."""
        other_job = [replace(run(i, 16, 300), from_other_job=True) for i in range(5)]
        history = [*other_job, *attempts_of({}, 20, 1)]
        later = [run(i, size, 20, EXHAUSTED) for i, size in enumerate((64, 128))]
        decision = ThompsonSamplingPolicy().decide(context([*other_job, *later], 20))
        assert decision.last_attempt
        assert ThompsonSamplingPolicy().decide(context(history, 20)).last_attempt

    @settings(max_examples=40, deadline=None)
    @given(
        st.dictionaries(st.sampled_from(SIZES), st.floats(2, 60).map(lambda each: (each,)), max_size=3),
        st.integers(5, 30),
    )
    def test_every_recurrence_of_a_job_with_a_reachable_target_reaches_it(
        self, needed: dict[int, tuple[float, ...]], max_epochs: int
    ) -> None:
        history = attempts_of(needed, max_epochs, 6)
        reached = {o.recurrence for o in history if o.outcome is REACHED}
        reachable = any(epochs <= max_epochs for (epochs,) in needed.values())
        assert reached == (set(range(6)) if reachable else set())


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(SIZES), st.floats(1, 15), st.sampled_from([REACHED, STOPPED])),
        min_size=1,
        max_size=25,
    )
)
def test_a_distant_limit_changes_no_decision(runs: list[Any]) -> None:
    history = [run(i, size, epochs, outcome) for i, (size, epochs, outcome) in enumerate(runs)]

    def decided(limit: int | None) -> Decision:
        return ThompsonSamplingPolicy().decide(context(history, limit))

    without, distant = decided(None), decided(10**18)
    assert (without.batch_size, without.kind) == (distant.batch_size, distant.kind)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(SIZES),
            st.sampled_from([1e-9, 0.5, 3.0, 20.0, 1e9]),
            st.sampled_from([REACHED, STOPPED, EXHAUSTED]),
        ),
        max_size=25,
    ),
    st.sampled_from([1, 2, 20, 10**6]),
)
def test_every_history_and_limit_gives_a_decision_with_finite_figures(runs: list[Any], max_epochs: int) -> None:
    history = [run(i, size, epochs, outcome) for i, (size, epochs, outcome) in enumerate(runs)]
    decision = ThompsonSamplingPolicy().decide(context(history, max_epochs))
    figures = [decision.stop_cost_joules or 0.0]
    for arm in decision.arms:
        figures += [arm.mean_cost_joules or 0.0, arm.low_cost_joules or 0.0, arm.high_cost_joules or 0.0]
    assert all(math.isfinite(figure) and figure >= 0 for figure in figures)


@settings(max_examples=30, deadline=None)
@given(st.floats(-3, 3), st.floats(0.05, 0.8), st.floats(-2, 2))
def test_the_expected_cost_with_a_limit_is_that_of_simulated_retries(mean: float, spread: float, z: float) -> None:
    """Against the empirical mean of min(epochs, limit), divided by the fraction that reaches."""
    log_limit = mean + spread * z
    draws = np.exp(mean + spread * np.random.default_rng(1).standard_normal(200_000))
    limit = math.exp(log_limit)
    unlimited = math.exp(mean + spread**2 / 2)
    one, other = np.array([mean]), np.array([spread])
    ratio = np.minimum(draws, limit).mean() / (draws <= limit).mean()
    assert math.exp(log_limit_factor(one, other, log_limit)[0]) * unlimited == pytest.approx(ratio, rel=0.05)
