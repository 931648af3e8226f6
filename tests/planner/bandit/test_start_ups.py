"""The start of an attempt, in the costs that the policy compares and in those that it states."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.start_up_jobs import RECURRENCES, Comparison
from support.test_sets.parameters import exhaustive_after
from wattloop_planner.bandit.policy import ChoiceKind, DecisionContext, PartialObservation
from wattloop_planner.bandit.start_ups import EpochForecast, StartUps
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


def expected_starts(*starts: tuple[int, float], arms: int = 2) -> list[float]:
    """Typical cost of the next start of each arm, after starts of (arm, joules)."""
    start_ups = StartUps(eta=1.0, arms=arms)
    for arm, joules in starts:
        start_ups.add(GPU, arm, joules)
    return [float(joules) for joules in start_ups.expected(GPU).typical]


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([], [0, 0]),
        ([(0, 500)], [500, 500]),
        ([(0, 500), (1, 500), (0, 500)], [500, 500]),
        # Nothing was cached at the first start.
        ([(0, 5000), (1, 0), (0, 0), (0, 0)], [0, 0]),
        # Arm 1 compiles, each time.
        ([(0, 0), (0, 0), (1, 5000), (0, 0), (1, 5000), (0, 0)], [0, 5000]),
        # Nothing was cached at the first start on each of two nodes, whichever arm ran there.
        ([(0, 5000), (1, 5000), (0, 0), (0, 0)], [0, 0]),
        # A first start is not less expensive than others because it is the first.
        ([(0, 0), (1, 5000), (1, 5000)], [0, 5000]),
        # An arm that compiles is not run often.
        ([(0, 0), (1, 5000), (1, 5000), *[(0, 0)] * 40], [0, 5000]),
        # The data grow.
        ([(0, 100 * index) for index in range(12)], [1100, 1100]),
        # The data grow, and another arm ran long ago.
        ([(0, 1000), (1, 1100), *[(0, 1000 + 100 * index) for index in range(2, 24)]], [3400, 3400]),
    ],
    ids=[
        "none",
        "one",
        "equal",
        "first of a node",
        "of one arm",
        "first of two nodes",
        "the first one is fast",
        "of an arm that ran long ago",
        "growing",
        "growing beyond an arm",
    ],
)
def test_the_expected_start_follows_the_starts_of_the_job(
    starts: list[tuple[int, float]], expected: list[float]
) -> None:
    assert expected_starts(*starts) == pytest.approx(expected, rel=0.15, abs=400)


def test_an_untried_arm_is_as_likely_to_start_slowly_as_the_others() -> None:
    fast, slow, untried = expected_starts((0, 0), (1, 5000), (0, 0), (1, 5000), (0, 0), arms=3)
    assert fast == pytest.approx(0, abs=100)
    assert slow == pytest.approx(5000, rel=0.1)
    assert untried == pytest.approx(2500, rel=0.2)


def test_a_start_that_was_cold_or_of_a_slow_arm_is_a_risk_of_that_arm() -> None:
    start_ups = StartUps(eta=1.0, arms=2)
    for arm, joules in ((0, 5000.0), (1, 0.0), (1, 0.0)):
        start_ups.add(GPU, arm, joules)
    expected = start_ups.expected(GPU)
    assert expected.typical == pytest.approx([0, 0], abs=100)
    assert 0 < expected.risk[0] < 2500
    assert expected.risk[1] == pytest.approx(0, abs=100)
    start_ups.add(GPU, 0, 0.0)
    assert start_ups.expected(GPU).risk == pytest.approx([0, 0], abs=100)


def test_a_start_on_another_gpu_model_says_nothing() -> None:
    start_ups = StartUps(eta=1.0, arms=2)
    start_ups.add(GPU, 0, 500.0)
    assert not start_ups.expected("another").typical.any()


def test_an_expected_start_is_less_than_the_attempt() -> None:
    start_ups = StartUps(eta=1.0, arms=2)
    start_ups.add(GPU, 0, 1e6)
    short = replace(run(1, 32, 1), epoch_energy_joules=None, epoch_time_seconds=None)
    assert 0 < start_ups.cost_of(0, short, GPU) < EPOCH_JOULES


def one_epoch(joules: float) -> PartialObservation:
    return PartialObservation(64, 1.0, joules, 1.0, 300.0, None, None)


@given(paid=st.floats(1, 1e6), sd=st.floats(0, 1), usual=st.floats(0, 1e6))
def test_the_parts_of_an_attempt_are_its_cost(paid: float, sd: float, usual: float) -> None:
    start_ups = StartUps(eta=1.0, arms=1)
    start_ups.add(GPU, 0, usual)
    parts = start_ups.parts(0, one_epoch(paid), GPU, EpochForecast(math.log(EPOCH_JOULES), sd))
    assert parts.start_up_joules >= 0
    assert parts.epoch_joules > 0
    if not parts.is_surprising:
        assert parts.start_up_joules + parts.epoch_joules == pytest.approx(paid)


@pytest.mark.parametrize(
    ("paid", "start", "shows"),
    [(600, 500, False), (620, 500, False), (900, 800, True), (150, 50, True), (90, 0, True)],
    ids=["as expected", "a more expensive epoch", "a longer start", "a shorter start", "no start"],
)
def test_an_attempt_of_one_epoch_shows_a_start_that_its_epoch_cannot_explain(
    paid: float, start: float, shows: bool
) -> None:
    start_ups = StartUps(eta=1.0, arms=1)
    start_ups.add(GPU, 0, 500.0)
    parts = start_ups.parts(0, one_epoch(paid), GPU, EpochForecast(math.log(EPOCH_JOULES), 0.2))
    assert (parts.start_up_joules, parts.shows_start_up) == (pytest.approx(start), shows)


@pytest.mark.parametrize("seed", exhaustive_after(range(10), usual=3))
def test_a_policy_that_learns_the_start_ups_pays_little_more_than_one_that_knows_them(seed: int) -> None:
    # benchmarks/bandit_start_ups.py has 200 jobs: start-ups that are constant, noisy, growing, of the first run of a
    # node and of some batch sizes.
    found = Comparison.of(seed)
    attempts = found.attempts
    assert found.ratio < 1.2
    assert {each.recurrence for each in attempts if each.outcome is Outcome.REACHED} == set(range(RECURRENCES))
    for earlier, later in pairwise(each for each in attempts if each.kind is not ChoiceKind.TRIAL):
        assert not earlier.outcome is later.outcome is Outcome.STOPPED


@given(start=st.floats(0, 1e6), epochs=st.floats(8, 50))
def test_costs_of_arms_are_those_without_a_start_and_one_start(start: float, epochs: float) -> None:
    policy = ThompsonSamplingPolicy()
    plain = policy.decide(context(run(0, 64, epochs), run(1, 32, 8)))
    started = policy.decide(context(run(0, 64, epochs, start), run(1, 32, 8, start)))
    for before, after in zip(plain.arms, started.arms, strict=True):
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
    assert decision.kind is ChoiceKind.TRIAL
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
        return best_stop(mean, spread, failing, 20.0, 0.0, retry=retry)[0]

    # At least the runs that never reach the target are stopped, and at most all.
    assert failing * start * 0.999 <= remaining(1 + start) - remaining(1.0) + 1e-9
    assert remaining(1 + start) >= remaining(1.0)


def test_the_bound_of_an_attempts_cost_includes_the_start() -> None:
    policy = ThompsonSamplingPolicy(max_cost_ratio=2.0, horizon=0.0, horizon_growth=0.0)
    decision = policy.decide(context(run(0, 64, 10, 3000.0), run(1, 64, 10, 3000.0)))
    (incumbent,) = (arm for arm in decision.arms if arm.batch_size == 64)
    assert decision.stop_cost_joules == pytest.approx(2 * incumbent.mean_cost_joules)
