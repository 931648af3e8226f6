"""The start of an attempt, in the costs that the policy compares and in those that it states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_planner.bandit.policy import DecisionContext, DecisionKind, PartialObservation
from wattloop_planner.bandit.start_ups import StartUps
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.bandit.trial_value import best_stop
from wattloop_planner.observations import Observation, Outcome, StartUp

GPU = "NVIDIA A100"
EPOCH_JOULES = 100.0


def run(recurrence: int, batch_size: int, epochs: float, start_joules: float | None = None) -> Observation:
    """A run of 300 W at most whose time costs nothing (eta is 1)."""
    return Observation(
        recurrence,
        0,
        batch_size,
        Outcome.REACHED,
        epochs,
        (start_joules or 0.0) + epochs * EPOCH_JOULES,
        1.0,
        300.0,
        GPU,
        EPOCH_JOULES,
        0.1,
        start_up=None if start_joules is None else StartUp(start_joules, 0.0),
    )


def context(*observations: Observation, recurrence: int | None = None) -> DecisionContext:
    index = len(observations) if recurrence is None else recurrence
    return DecisionContext((16, 32, 64, 128), 64, 1.0, index, 0, tuple(observations), 7, gpu_model=GPU)


def test_the_expected_start_is_the_median_of_the_latest_ones_on_the_gpu_model() -> None:
    start_ups = StartUps(eta=1.0)
    assert start_ups.expected(GPU) == 0
    for index, joules in enumerate([9e9] * 20 + [100.0, 300.0, 200.0] * 3):
        start_ups.add(run(index, 64, 10, joules))
    start_ups.add(run(40, 64, 10))
    assert start_ups.expected(GPU) == pytest.approx(200.0)
    assert start_ups.expected("another") == 0


def test_an_expected_start_is_less_than_the_attempt() -> None:
    start_ups = StartUps(eta=1.0)
    start_ups.add(run(0, 64, 10, 1e6))
    short = replace(run(1, 32, 1), epoch_energy_joules=None, epoch_time_seconds=None)
    assert 0 < start_ups.cost_of(short, GPU) < EPOCH_JOULES


@given(start=st.floats(0, 1e6), epochs=st.floats(2, 50))
def test_costs_of_arms_are_those_without_a_start_and_one_start(start: float, epochs: float) -> None:
    policy = ThompsonSamplingPolicy()
    plain = policy.decide(context(run(0, 64, epochs), run(1, 32, 8)))
    started = policy.decide(context(run(0, 64, epochs, start), run(1, 32, 8, start)))
    for before, after in zip(plain.arms, started.arms, strict=True):
        assert before.mean_cost_joules is not None
        assert after.mean_cost_joules == pytest.approx(before.mean_cost_joules + start)


def reviewed(start_joules: float, *, is_measured: bool) -> tuple[float, float]:
    """Limit and cost of a trial after its first epoch, which costs a third of one of the default's.

    The default takes 10 epochs. If the start of earlier runs is not measured, their epochs seem to cost more.
    """
    known = run(0, 64, 10, start_joules)
    if not is_measured:
        each = known.energy_joules / known.epochs
        known = replace(known, start_up=None, epoch_energy_joules=each)
    policy, decided = ThompsonSamplingPolicy(), context(known)
    decision = policy.decide(decided)
    assert decision.kind is DecisionKind.TRIAL
    paid = start_joules + EPOCH_JOULES / 3
    mean = None if is_measured else paid
    partial = PartialObservation(decision.batch_size, 1.0, paid, 1.0, 300.0, mean, None if mean is None else 0.1)
    limit = policy.review(decided, decision, partial)
    assert limit is not None
    return limit, paid


def test_a_trial_continues_although_its_first_epoch_contains_the_start() -> None:
    limit, paid = reviewed(10 * EPOCH_JOULES, is_measured=True)
    assert limit > paid + 3 * EPOCH_JOULES


def test_without_the_start_the_same_trial_would_be_stopped() -> None:
    # Shows that the test above depends on the start.
    limit, paid = reviewed(10 * EPOCH_JOULES, is_measured=False)
    assert limit == pytest.approx(paid)


@given(mean=st.floats(-1, 1), spread=st.floats(0.05, 0.6), failing=st.floats(0.01, 0.5), start=st.floats(0.01, 5))
def test_a_stop_wastes_a_start(mean: float, spread: float, failing: float, start: float) -> None:
    def remaining(retry: float) -> float:
        values = np.array([mean]), np.array([spread]), np.array([failing])
        return float(best_stop(*values, 20.0, np.zeros(1), retry=retry)[0][0])

    # At least the runs that never reach the target are stopped, and at most all.
    assert failing * start * 0.999 <= remaining(1 + start) - remaining(1.0) + 1e-9
    assert remaining(1 + start) >= remaining(1.0)


def test_the_bound_of_an_attempts_cost_includes_the_start() -> None:
    policy = ThompsonSamplingPolicy(max_cost_ratio=2.0, horizon=0.0, horizon_growth=0.0)
    decision = policy.decide(context(run(0, 64, 10, 3000.0), run(1, 64, 10, 3000.0)))
    (incumbent,) = (arm for arm in decision.arms if arm.batch_size == 64)
    assert incumbent.mean_cost_joules is not None
    assert decision.stop_cost_joules == pytest.approx(2 * incumbent.mean_cost_joules)
