import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop_planner.bandit.policy import (
    Decision,
    DecisionContext,
    DecisionKind,
    NoFeasibleArmError,
    PartialObservation,
)
from wattloop_planner.bandit.priors import NoisePrior
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome

ContextAfter = Callable[..., DecisionContext]
REACHED, STOPPED, EXHAUSTED, CRASHED = Outcome.REACHED, Outcome.STOPPED, Outcome.EXHAUSTED, Outcome.CRASHED
SIZES = (8, 16, 32, 64, 128)


def run(
    recurrence: int, size: int, epochs: float, epoch_energy: float, outcome: Outcome = REACHED, **more: Any
) -> Observation:
    """A run at a measured epoch energy and 1 s an epoch."""
    observation = Observation(
        recurrence,
        0,
        size,
        outcome,
        epochs,
        epochs * epoch_energy,
        epochs * 1.0,
        100.0,
        "A",
        epoch_energy,
        1.0,
    )
    return replace(observation, **more)


def context(observations: list[Observation], **more: Any) -> DecisionContext:
    recurrence = max((o.recurrence for o in observations), default=-1) + 1
    given: dict[str, Any] = {"eta": 0.5, "recurrence": recurrence, "attempt": 0, "seed": 3, "gpu_model": "A", **more}
    return DecisionContext(SIZES, 32, observations=tuple(observations), **given)


def decided(observations: list[Observation], **more: Any) -> Decision:
    return ThompsonSamplingPolicy().decide(context(observations, **more))


def settled(size: int = 32, runs: int = 60) -> list[Observation]:
    """A history in which all neighbours were tried and found dearer."""
    tried = [run(i, other, 30, 300) for i, other in enumerate((8, 16, 64, 128))]
    return tried + [run(i, size, 10 + i % 2, 100) for i in range(4, 4 + runs)]


def test_the_first_run_is_the_default_and_never_stopped() -> None:
    decision = decided([])
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (32, DecisionKind.DEFAULT, None)


def test_a_default_that_does_not_arrive_is_followed_by_its_nearest_neighbours() -> None:
    history: list[Observation] = []
    order = []
    for attempt in range(5):
        decision = decided(history, recurrence=0, attempt=attempt)
        order.append(decision.batch_size)
        history.append(run(0, decision.batch_size, 100, 100, EXHAUSTED, attempt=attempt))
    assert order == [32, 16, 64, 8, 128]


def test_after_the_default_a_neighbour_is_tried_and_the_trial_has_a_stop() -> None:
    decision = decided([run(0, 32, 10, 100)])
    assert decision.batch_size in {16, 64}
    assert decision.kind is DecisionKind.TRIAL
    # The default cost 10 epochs of 0.5·100 + 0.5·100 J.
    assert decision.stop_cost_joules is not None
    assert 0.5 * 1000 < decision.stop_cost_joules < 3 * 1000


def test_a_settled_job_runs_its_cheapest_size_unstopped() -> None:
    decision = decided(settled())
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (32, DecisionKind.INCUMBENT, None)


def test_no_trial_in_the_last_recurrence() -> None:
    assert decided([run(0, 32, 10, 100)], remaining_recurrences=0).kind is DecisionKind.INCUMBENT


def test_a_retry_runs_the_cheapest_size_known_unstopped() -> None:
    history = [run(0, 32, 10, 100), run(1, 64, 15, 100, STOPPED)]
    decision = decided(history, recurrence=1, attempt=1)
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (32, DecisionKind.INCUMBENT, None)


def test_after_a_trial_given_up_in_its_first_epoch_another_may_follow() -> None:
    history = [run(0, 32, 40, 100), run(1, 64, 1, 400, STOPPED)]
    decision = decided(history, recurrence=1, attempt=1)
    assert decision.batch_size in {8, 16}
    assert decision.kind is DecisionKind.TRIAL


def test_a_size_that_just_failed_with_all_its_epochs_is_not_run_again_at_once() -> None:
    history = [*settled(), run(70, 32, 100, 100, EXHAUSTED)]
    assert decided(history, recurrence=70, attempt=1).batch_size != 32


def test_a_stopped_run_counts_as_a_bound_and_not_as_a_cheap_run() -> None:
    base = [run(0, 32, 10, 100)]
    cheap_stop = [*base, run(1, 16, 2, 100, STOPPED)]
    dear_stop = [*base, run(1, 16, 14, 100, STOPPED)]
    means = [
        {arm.batch_size: arm.mean_cost_joules for arm in decided(history).arms}[16]
        for history in (base, cheap_stop, dear_stop)
    ]
    assert all(mean is not None for mean in means)
    assert means[0] * 0.8 < means[1] < means[2]  # type: ignore[operator]
    assert means[2] > 1400  # type: ignore[operator]


def test_one_unlucky_run_of_the_neighbour_does_not_hold_the_job_at_its_default() -> None:
    epochs = [26, 24, 40, 25, 20, 23, 24, 21, 21, 22]

    def tried_after(policy: ThompsonSamplingPolicy) -> set[int]:
        history = [run(0, 128, epochs[0], 100), run(1, 64, 47, 100, STOPPED)]
        history += [run(1 + i, 128, each, 100, attempt=i == 0) for i, each in enumerate(epochs[1:])]
        questions = [replace(context(history[:end]), default_batch_size=128) for end in range(3, len(history) + 1)]
        decisions = [policy.decide(each) for each in questions]
        return {each.batch_size for each in decisions if each.kind is DecisionKind.TRIAL}

    assert tried_after(ThompsonSamplingPolicy()) & {32, 64}
    assert not tried_after(ThompsonSamplingPolicy(noise=NoisePrior(outlier_probability=0)))


def test_a_crash_teaches_nothing_of_the_cost() -> None:
    history = settled()
    crashed = [*history, run(90, 32, 3, 100, CRASHED)]
    assert decided(crashed, recurrence=91).arms == decided(history, recurrence=91).arms


def test_a_crashed_arm_is_pruned_after_k_crashes_and_said_to_be() -> None:
    history = [*settled(), *(run(90 + i, 32, 0, 100, CRASHED) for i in range(3))]
    decision = decided(history)
    assert decision.batch_size != 32
    pruned = [arm for arm in decision.arms if arm.pruned]
    assert [(arm.batch_size, arm.note) for arm in pruned] == [(32, "crashed 3 times in a row")]
    assert decided(history[:-1]).batch_size == 32


def test_the_crash_budget_can_be_set() -> None:
    history = [*settled(), run(90, 32, 0, 100, CRASHED)]
    assert ThompsonSamplingPolicy(crash_budget=1).decide(context(history)).batch_size != 32


def test_every_arm_crashed_is_an_error_with_the_way_out() -> None:
    history = [run(i, size, 0, 100, CRASHED) for i, size in enumerate(SIZES * 3)]
    with pytest.raises(NoFeasibleArmError, match="mend the training or offer other batch sizes"):
        decided(history)


class TestReview:
    """Thinking again once the epoch cost of a trial has become known."""

    def reviewed(self, epoch_energy: float, size: int = 64) -> float | None:
        asked = context([run(0, 32, 40, 100)])
        trial = Decision(size, DecisionKind.TRIAL, "", 6000.0)
        progress = PartialObservation(size, 1.0, epoch_energy, 1.0, 100.0, epoch_energy, 1.0)
        return ThompsonSamplingPolicy().review(asked, trial, progress)

    def test_an_epoch_that_is_far_too_dear_ends_the_trial_at_once(self) -> None:
        assert self.reviewed(2000.0) == pytest.approx(0.5 * 2000 + 50)

    def test_an_epoch_that_is_cheap_lets_it_go_on(self) -> None:
        stop = self.reviewed(10.0)
        assert stop is not None
        assert stop > 1000

    def test_what_is_no_trial_keeps_its_stop(self) -> None:
        asked = context([run(0, 32, 40, 100)])
        progress = PartialObservation(32, 1.0, 9e9, 1.0, 100.0, 9e9, 1.0)
        known = Decision(32, DecisionKind.INCUMBENT, "")
        assert ThompsonSamplingPolicy().review(asked, known, progress) is None


class TestConcurrency:
    """Decisions while attempts of the same job are in flight."""

    def test_a_risky_trial_in_flight_is_not_doubled_nor_joined_by_another(self) -> None:
        history = [run(0, 32, 10, 100)]
        trial = decided(history)
        for seed in range(5):
            beside = decided(history, running=(trial.batch_size,), seed=seed)
            assert (beside.batch_size, beside.kind) == (32, DecisionKind.INCUMBENT)

    def test_beside_a_known_arm_the_known_arms_are_sampled_jointly(self) -> None:
        history = [run(i, size, 10 + i % 3, 100) for i, size in enumerate((32, 16, 32, 16, 32, 16))]
        kinds = {
            (d.batch_size, d.kind)
            for d in (decided(history, running=(32,), seed=seed, remaining_recurrences=0) for seed in range(30))
        }
        assert kinds == {(16, DecisionKind.SAMPLE), (32, DecisionKind.SAMPLE)}

    def test_a_late_result_is_used_wherever_it_belongs(self) -> None:
        early, late = settled(runs=20), run(2, 64, 9, 20, attempt=1)
        assert decided([*early, late]) == decided(sorted([*early, late], key=lambda o: (o.recurrence, o.attempt)))
        assert decided([*early, late], recurrence=24) != decided(early, recurrence=24)


class TestDrift:
    """The past is forgotten when the runs no longer fit it."""

    def test_an_incumbent_is_never_stopped_for_being_dearer_than_the_past(self) -> None:
        history = settled()
        for i in range(10):
            decision = decided([*history, *(run(70 + j, 32, 40, 100) for j in range(i))])
            if decision.kind is DecisionKind.INCUMBENT:
                assert decision.stop_cost_joules is None

    def test_a_job_that_has_become_dearer_makes_the_other_sizes_uncertain_again(self) -> None:
        dearer = [run(70 + i, 32, 40, 100) for i in range(3)]
        before = {arm.batch_size: arm for arm in decided(settled()).arms}
        after = {arm.batch_size: arm for arm in decided([*settled(), *dearer]).arms}
        assert after[32].observations == 3
        assert after[32].mean_cost_joules == pytest.approx(4000, rel=0.1)
        for size in (8, 16, 64, 128):
            assert spread(after[size]) > 1.5 * spread(before[size])
            assert after[size].mean_cost_joules > 1.5 * before[size].mean_cost_joules  # type: ignore[operator]

    def test_one_run_that_is_far_off_is_no_change(self) -> None:
        policy = ThompsonSamplingPolicy()
        policy.decide(context([*settled(), run(70, 32, 30, 100), *(run(71 + i, 32, 10, 100) for i in range(5))]))
        assert policy._cache._posterior is not None
        assert policy._cache._posterior.changes == 0

    def test_a_window_forgets_all_arms_together(self) -> None:
        policy = ThompsonSamplingPolicy(window=10)
        arms = policy.decide(context(settled())).arms
        assert {arm.batch_size: arm.observations for arm in arms} == {8: 0, 16: 0, 32: 10, 64: 0, 128: 0}
        all_time = {arm.batch_size: arm for arm in decided(settled()).arms}
        for arm in arms:
            if arm.batch_size != 32:
                assert spread(arm) > spread(all_time[arm.batch_size])


def spread(arm: Any) -> float:
    return float(math.log(arm.high_cost_joules / arm.low_cost_joules))


class TestTransfer:
    """What another GPU model or another job has learned."""

    def test_another_gpu_model_starts_with_the_best_size_and_unstopped(self) -> None:
        decision = decided(settled(size=64, runs=20), gpu_model="B")
        assert (decision.batch_size, decision.stop_cost_joules) == (64, None)

    def test_its_epoch_costs_count_up_to_a_level(self) -> None:
        """All epochs ten times as dear on the new model: the ranking stays, one run tells the level."""
        history = settled(runs=20)
        moved = [*history, run(30, 32, 10, 1000, gpu_model="B")]
        before = {arm.batch_size: arm for arm in decided(history).arms}
        after = {arm.batch_size: arm for arm in decided(moved, gpu_model="B").arms}
        for size in (16, 64):
            ratio = after[size].mean_cost_joules / before[size].mean_cost_joules  # type: ignore[operator]
            assert 4 < ratio < 13

    def test_no_cost_is_claimed_before_the_level_is_known(self) -> None:
        assert all(arm.mean_cost_joules is None for arm in decided(settled(), gpu_model="B").arms)

    def test_an_unknown_gpu_model_is_taken_for_the_one_that_ran(self) -> None:
        nameless = [replace(o, gpu_model="") for o in settled()]
        known = decided(settled())
        assert known == decided(settled(), gpu_model="")
        assert known == decided(nameless, gpu_model="")

    def test_another_job_teaches_its_epochs_and_not_its_epoch_costs(self) -> None:
        lesson = [replace(o, from_other_job=True) for o in settled(size=64, runs=20)]
        first = decided(lesson, recurrence=0)
        assert (first.batch_size, first.kind) == (32, DecisionKind.DEFAULT)
        history = [*lesson, run(0, 32, 30, 100)]
        taught = {arm.batch_size: arm for arm in decided(history, recurrence=1).arms}
        alone = {arm.batch_size: arm for arm in decided([run(0, 32, 30, 100)], recurrence=1).arms}
        assert spread(taught[64]) < spread(alone[64])
        assert taught[64].mean_cost_joules < taught[16].mean_cost_joules  # type: ignore[operator]

    def test_crashes_of_another_job_count_for_nothing(self) -> None:
        lesson = [run(i, 32, 0, 100, CRASHED, from_other_job=True) for i in range(5)]
        assert decided(lesson, recurrence=0).batch_size == 32


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
        )
        for i in range(count)
    ]


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_the_order_of_arrival_does_not_matter_nor_do_repeated_reports(data: random.Random, count: int) -> None:
    history = random_history(data, count)
    shuffled = [*history, *history[: count // 3]]
    data.shuffle(shuffled)
    asked = {"recurrence": 30}
    assert outcome_of(history, **asked) == outcome_of(shuffled, **asked)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_a_memory_that_grew_decides_as_one_that_was_folded_anew(data: random.Random, count: int) -> None:
    history = random_history(data, count)
    policy = ThompsonSamplingPolicy()
    for known in range(count + 1):
        asked = context(history[:known])
        try:
            grown: object = policy.decide(asked)
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
def test_no_figure_is_ever_nan_whatever_the_runs_cost(runs: list[Any], eta: float) -> None:
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
