import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit import posterior
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, NoFeasibleArmError, PartialObservation
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome

ContextAfter = Callable[..., DecisionContext]
REACHED, STOPPED, EXHAUSTED, CRASHED = Outcome.REACHED, Outcome.STOPPED, Outcome.EXHAUSTED, Outcome.CRASHED
SIZES = (8, 16, 32, 64, 128)


def run(
    recurrence: int, size: int, epochs: float, epoch_energy: float, outcome: Outcome = REACHED, **more: Any
) -> Observation:
    """A run with a measured epoch energy and 1 s per epoch."""
    observation = Observation(
        recurrence, 0, size, outcome, epochs, epochs * epoch_energy, epochs * 1.0, 100.0, "A", epoch_energy, 1.0
    )
    return replace(observation, **more)


def context(observations: list[Observation], **more: Any) -> DecisionContext:
    recurrence = max((o.recurrence for o in observations), default=-1) + 1
    given: dict[str, Any] = {
        "eta": 0.5,
        "recurrence": recurrence,
        "attempt": 0,
        "seed": 3,
        "gpu_model": "A",
        "target": RunTarget("accuracy", 0.9),
        **more,
    }
    return DecisionContext(SIZES, 32, observations=tuple(observations), **given)


def decided(observations: list[Observation], **more: Any) -> Decision:
    return ThompsonSamplingPolicy().decide(context(observations, **more))


def converged(size: int = 32, runs: int = 60) -> list[Observation]:
    """A history in which all neighbours were tried and were more expensive."""
    tried = [run(i, other, 30, 300) for i, other in enumerate((8, 16, 64, 128))]
    return tried + [run(i, size, 10 + i % 2, 100) for i in range(4, 4 + runs)]


def test_the_first_run_is_the_default_without_a_stop() -> None:
    decision = decided([])
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (32, ChoiceKind.DEFAULT, None)


def test_a_default_that_misses_the_target_is_followed_by_the_others_the_lowest_expected_cost_first() -> None:
    history: list[Observation] = []
    order = []
    for attempt in range(5):
        decision = decided(history, recurrence=0, attempt=attempt)
        order.append(decision.batch_size)
        history.append(run(0, decision.batch_size, 100, 100, EXHAUSTED, attempt=attempt))
    assert order == [32, 16, 8, 64, 128]


def test_the_second_run_is_a_trial_of_a_neighbour_with_a_stop() -> None:
    decision = decided([run(0, 32, 10, 100)])
    assert decision.batch_size in {16, 64}
    assert decision.kind is ChoiceKind.TRIAL
    # The default cost 10 epochs of 0.5·100 + 0.5·100 J.
    assert 0.5 * 1000 < decision.stop_cost_joules < 3 * 1000


def test_a_converged_job_runs_its_cheapest_size_without_a_stop() -> None:
    decision = decided(converged())
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (32, ChoiceKind.INCUMBENT, None)


def test_the_last_recurrence_has_no_trial() -> None:
    assert decided([run(0, 32, 10, 100)], remaining_recurrences=0).kind is ChoiceKind.INCUMBENT


def test_a_retry_runs_the_cheapest_known_size_without_a_stop() -> None:
    history = [run(0, 32, 10, 100), run(1, 64, 15, 100, STOPPED)]
    decision = decided(history, recurrence=1, attempt=1)
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (32, ChoiceKind.INCUMBENT, None)


def test_a_trial_stopped_in_its_first_epoch_may_be_followed_by_another() -> None:
    history = [run(0, 32, 40, 100), run(1, 64, 1, 400, STOPPED)]
    decision = decided(history, recurrence=1, attempt=1)
    assert decision.batch_size in {8, 16}
    assert decision.kind is ChoiceKind.TRIAL


def test_a_size_that_exhausted_its_epochs_is_not_retried_immediately() -> None:
    history = [*converged(), run(70, 32, 100, 100, EXHAUSTED)]
    assert decided(history, recurrence=70, attempt=1).batch_size != 32


def test_a_stopped_run_counts_as_a_bound_and_not_as_a_cheap_run() -> None:
    base = [run(0, 32, 10, 100)]
    cheap_stop = [*base, run(1, 16, 2, 100, STOPPED)]
    expensive_stop = [*base, run(1, 16, 14, 100, STOPPED)]
    means = [
        {arm.batch_size: arm.mean_cost_joules for arm in decided(history).arms}[16]
        for history in (base, cheap_stop, expensive_stop)
    ]
    assert all(mean is not None for mean in means)
    assert means[0] * 0.8 < means[1] < means[2]  # type: ignore[operator]
    assert means[2] > 1400  # type: ignore[operator]


def test_one_unlucky_run_of_a_neighbour_does_not_prevent_further_trials() -> None:
    epochs = [26, 24, 40, 25, 20, 23, 24, 21, 21, 22]

    def tried_after(policy: ThompsonSamplingPolicy) -> set[int]:
        history = [run(0, 128, epochs[0], 100), run(1, 64, 47, 100, STOPPED)]
        history += [run(1 + i, 128, each, 100, attempt=i == 0) for i, each in enumerate(epochs[1:])]
        contexts = [replace(context(history[:end]), default_batch_size=128) for end in range(3, len(history) + 1)]
        decisions = [policy.decide(each) for each in contexts]
        return {each.batch_size for each in decisions if each.kind is ChoiceKind.TRIAL}

    assert tried_after(ThompsonSamplingPolicy()) & {32, 64}
    with mock.patch.object(posterior, "OUTLIER_PROBABILITY", 0.0):
        assert not tried_after(ThompsonSamplingPolicy())


def test_a_crash_does_not_change_the_estimated_cost() -> None:
    history = converged()
    crashed = [*history, run(90, 32, 3, 100, CRASHED)]
    assert decided(crashed, recurrence=91).arms == decided(history, recurrence=91).arms


def test_an_arm_is_pruned_with_a_note_after_k_crashes() -> None:
    history = [*converged(), *(run(90 + i, 32, 0, 100, CRASHED) for i in range(3))]
    decision = decided(history)
    assert decision.batch_size != 32
    pruned = [arm for arm in decision.arms if arm.pruned]
    assert [(arm.batch_size, arm.note) for arm in pruned] == [(32, "crashed 3 times in a row")]
    assert decided(history[:-1]).batch_size == 32


def test_crashes_of_every_arm_are_an_error_with_a_remedy() -> None:
    history = [run(i, size, 0, 100, CRASHED) for i, size in enumerate(SIZES * 3)]
    with pytest.raises(NoFeasibleArmError, match="fix the training or offer other batch sizes"):
        decided(history)


class TestReview:
    """Review of a trial once its epoch cost is known."""

    def reviewed(self, epoch_energy: float, size: int = 64) -> float | None:
        decision_context = context([run(0, 32, 40, 100)])
        trial = Decision(size, ChoiceKind.TRIAL, "", 6000.0)
        progress = PartialObservation(size, 1.0, epoch_energy, 1.0, 100.0, epoch_energy, 1.0)
        return ThompsonSamplingPolicy().review(decision_context, trial, progress)

    def test_a_far_too_expensive_epoch_stops_the_trial_immediately(self) -> None:
        assert self.reviewed(2000.0) == pytest.approx(0.5 * 2000 + 50)

    def test_a_cheap_epoch_lets_the_trial_continue(self) -> None:
        stop = self.reviewed(10.0)
        assert stop > 1000

    def test_a_decision_that_is_not_a_trial_keeps_its_stop(self) -> None:
        decision_context = context([run(0, 32, 40, 100)])
        progress = PartialObservation(32, 1.0, 9e9, 1.0, 100.0, 9e9, 1.0)
        known = Decision(32, ChoiceKind.INCUMBENT, "")
        assert ThompsonSamplingPolicy().review(decision_context, known, progress) is None


class TestConcurrency:
    """Decisions while other attempts of the job are in flight."""

    def test_no_second_trial_starts_beside_a_risky_trial(self) -> None:
        history = [run(0, 32, 10, 100)]
        trial = decided(history)
        for seed in range(5):
            beside = decided(history, running=(Configuration(trial.batch_size),), seed=seed)
            assert (beside.batch_size, beside.kind) == (32, ChoiceKind.INCUMBENT)

    def test_known_arms_are_sampled_jointly_beside_a_known_arm(self) -> None:
        history = [run(i, size, 10 + i % 3, 100) for i, size in enumerate((32, 16, 32, 16, 32, 16))]
        kinds = {
            (d.batch_size, d.kind)
            for d in (
                decided(history, running=(Configuration(32),), seed=seed, remaining_recurrences=0) for seed in range(30)
            )
        }
        assert kinds == {(16, ChoiceKind.SAMPLE), (32, ChoiceKind.SAMPLE)}

    def test_a_late_result_is_used_at_its_position(self) -> None:
        early, late = converged(runs=20), run(2, 64, 9, 20, attempt=1)
        assert decided([*early, late]) == decided(sorted([*early, late], key=lambda o: (o.recurrence, o.attempt)))
        assert decided([*early, late], recurrence=24) != decided(early, recurrence=24)


class TestDrift:
    """Change detection."""

    def test_an_incumbent_that_becomes_more_expensive_is_never_stopped(self) -> None:
        history = converged()
        for i in range(10):
            decision = decided([*history, *(run(70 + j, 32, 40, 100) for j in range(i))])
            if decision.kind is ChoiceKind.INCUMBENT:
                assert decision.stop_cost_joules is None

    def test_a_more_expensive_job_increases_the_uncertainty_of_other_sizes(self) -> None:
        expensive_runs = [run(70 + i, 32, 40, 100) for i in range(3)]
        before = {arm.batch_size: arm for arm in decided(converged()).arms}
        after = {arm.batch_size: arm for arm in decided([*converged(), *expensive_runs]).arms}
        assert after[32].observations == 3
        assert after[32].mean_cost_joules == pytest.approx(4000, rel=0.1)
        for size in (8, 16, 64, 128):
            assert spread(after[size]) > 1.5 * spread(before[size])
            assert after[size].mean_cost_joules > 1.5 * before[size].mean_cost_joules  # type: ignore[operator]

    def test_one_distant_run_is_not_a_change_of_regime(self) -> None:
        policy = ThompsonSamplingPolicy()
        policy.decide(context([*converged(), run(70, 32, 30, 100), *(run(71 + i, 32, 10, 100) for i in range(5))]))
        assert policy._cache._posterior.changes == 0

    def test_a_window_applies_to_all_arms_together(self) -> None:
        policy = ThompsonSamplingPolicy(window=10)
        arms = policy.decide(context(converged())).arms
        assert {arm.batch_size: arm.observations for arm in arms} == {8: 0, 16: 0, 32: 10, 64: 0, 128: 0}
        all_time = {arm.batch_size: arm for arm in decided(converged()).arms}
        for arm in arms:
            if arm.batch_size != 32:
                assert spread(arm) > spread(all_time[arm.batch_size])


def spread(arm: Any) -> float:
    return float(math.log(arm.high_cost_joules / arm.low_cost_joules))


class TestTransfer:
    """Observations of another GPU model or another job."""

    def test_another_gpu_model_starts_with_the_best_size_without_a_stop(self) -> None:
        decision = decided(converged(size=64, runs=20), gpu_model="B")
        assert (decision.batch_size, decision.stop_cost_joules) == (64, None)

    def test_epoch_costs_of_another_model_apply_up_to_a_factor(self) -> None:
        """If epochs cost ten times as much on the new model, one run gives the level of all arms."""
        history = converged(runs=20)
        moved = [*history, run(30, 32, 10, 1000, gpu_model="B")]
        before = {arm.batch_size: arm for arm in decided(history).arms}
        after = {arm.batch_size: arm for arm in decided(moved, gpu_model="B").arms}
        for size in (16, 64):
            ratio = after[size].mean_cost_joules / before[size].mean_cost_joules  # type: ignore[operator]
            assert 4 < ratio < 13

    def test_no_cost_is_reported_before_the_level_is_known(self) -> None:
        assert all(arm.mean_cost_joules is None for arm in decided(converged(), gpu_model="B").arms)

    def test_an_unknown_gpu_model_counts_as_the_one_that_ran(self) -> None:
        nameless = [replace(o, gpu_model="") for o in converged()]
        known = decided(converged())
        assert known == decided(converged(), gpu_model="")
        assert known == decided(nameless, gpu_model="")

    def test_another_job_contributes_epochs_but_no_epoch_costs(self) -> None:
        other_job = [replace(o, from_other_job=True) for o in converged(size=64, runs=20)]
        first = decided(other_job, recurrence=0)
        assert (first.batch_size, first.kind) == (32, ChoiceKind.DEFAULT)
        history = [*other_job, run(0, 32, 30, 100)]
        informed = {arm.batch_size: arm for arm in decided(history, recurrence=1).arms}
        alone = {arm.batch_size: arm for arm in decided([run(0, 32, 30, 100)], recurrence=1).arms}
        assert spread(informed[64]) < spread(alone[64])
        assert informed[64].mean_cost_joules < informed[16].mean_cost_joules  # type: ignore[operator]

    def test_crashes_of_another_job_are_ignored(self) -> None:
        other_job = [run(i, 32, 0, 100, CRASHED, from_other_job=True) for i in range(5)]
        assert decided(other_job, recurrence=0).batch_size == 32


def random_history(data: random.Random, count: int) -> list[Observation]:
    outcomes = (REACHED, REACHED, REACHED, STOPPED, EXHAUSTED, CRASHED)
    return [
        run(
            i // 2,
            data.choice(SIZES),
            data.uniform(0.1, 100),
            data.uniform(1, 1000),
            data.choice(outcomes),
            attempt=i % 2,
            curve=MetricCurve.from_points(
                (data.uniform(0.05, 100), data.choice((0.1, 0.5, 0.9))) for _ in range(i % 4)
            ),
        )
        for i in range(count)
    ]


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_order_of_arrival_and_repeated_reports_change_no_decision(data: random.Random, count: int) -> None:
    history = random_history(data, count)
    shuffled = [*history, *history[: count // 3]]
    data.shuffle(shuffled)
    decision_context = {"recurrence": 30}
    assert outcome_of(history, **decision_context) == outcome_of(shuffled, **decision_context)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_an_incrementally_updated_posterior_gives_the_same_decisions(data: random.Random, count: int) -> None:
    history = random_history(data, count)
    policy = ThompsonSamplingPolicy()
    for known in range(count + 1):
        decision_context = context(history[:known])
        try:
            grown: object = policy.decide(decision_context)
        except NoFeasibleArmError as error:
            grown = str(error)
        assert grown == outcome_of(history[:known])


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 30), st.sampled_from([1e-6, 1e-3, 0.125, 1024.0, 1e9]))
def test_other_units_of_energy_and_time_change_no_choice(data: random.Random, count: int, factor: float) -> None:
    history = random_history(data, count)
    scaled = [
        replace(
            o,
            energy_joules=o.energy_joules * factor,
            epoch_energy_joules=o.epoch_energy_joules * factor if o.epoch_energy_joules is not None else None,
            max_power_watts=o.max_power_watts * factor,
        )
        for o in history
    ]
    one, other = outcome_of(history), outcome_of(scaled)
    if isinstance(one, Decision) and isinstance(other, Decision):
        assert (one.batch_size, one.kind) == (other.batch_size, other.kind)
        if one.stop_cost_joules is not None:
            assert other.stop_cost_joules == pytest.approx(one.stop_cost_joules * factor, rel=1e-6)
    else:
        assert one == other


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(SIZES),
            st.sampled_from(list(Outcome)),
            st.sampled_from([0.0, 1e-9, 0.5, 3.0, 1e9]),
            st.sampled_from([0.0, 1e-12, 1.0, 1e15]),
            st.booleans(),
        ),
        max_size=25,
    ),
    st.floats(0, 1),
)
def test_no_figure_is_ever_nan(runs: list[Any], eta: float) -> None:
    history = [
        run(i, size, epochs, energy, outcome)
        if profiled
        else run(i, size, epochs, energy, outcome, epoch_energy_joules=None, epoch_time_seconds=None)
        for i, (size, outcome, epochs, energy, profiled) in enumerate(runs)
    ]
    decision = outcome_of(history, eta=eta)
    if isinstance(decision, Decision):
        figures = [decision.stop_cost_joules or 0.0]
        for arm in decision.arms:
            figures += [arm.mean_cost_joules or 0.0, arm.low_cost_joules or 0.0, arm.high_cost_joules or 0.0]
        assert all(math.isfinite(figure) and figure >= 0 for figure in figures)


def outcome_of(history: list[Observation], **more: Any) -> object:
    try:
        return ThompsonSamplingPolicy().decide(context(history, **more))
    except NoFeasibleArmError as error:
        return str(error)
