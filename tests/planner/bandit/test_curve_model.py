"""Predictions from curves: exact cases, honest intervals, and curves that mislead."""

import math
import random
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit import feasible_arms
from wattloop_planner.bandit.curve_model import FRACTIONS, PRIOR_SD, AttemptEpochs, CurveModel, CurvePrediction
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome

OCTAVES = np.array([3.0, 4.0, 5.0, 6.0])
DISTANCES = np.abs(OCTAVES[:, None] - OCTAVES)
SIZES = (8, 16, 32, 64)
TARGET = RunTarget("accuracy", 0.9)


def curve(total: int, *, seen: int | None = None, sign: float = 1.0, scale: float = 1.0) -> MetricCurve:
    """A curve that depends on the share of the run only: accuracy 0.9·√share."""
    epochs = range(1, (seen or total) + 1)
    return MetricCurve(
        tuple(map(float, epochs)), tuple(sign * scale * 0.9 * math.sqrt(epoch / total) for epoch in epochs)
    )


@pytest.mark.parametrize(("sign", "maximize"), [(1.0, True), (-1.0, False)])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_a_stretched_curve_predicts_its_epochs_exactly(sign: float, maximize: bool, scale: float) -> None:
    model = CurveModel(DISTANCES, maximize)
    model.learn(0, curve(10, sign=sign, scale=scale), 10)
    prediction = model.predict(2, curve(40, seen=20, sign=sign, scale=scale), 20)
    assert math.exp(prediction.log_epochs) == pytest.approx(40, rel=0.02)


def test_a_run_that_no_longer_improves_is_predicted_to_take_longer() -> None:
    model = CurveModel(DISTANCES, maximize=True)
    model.learn(0, curve(10), 10)
    stuck = MetricCurve(tuple(map(float, range(1, 31))), (*curve(10, seen=5).metrics, *([0.5] * 25)))
    predictions = [model.predict(1, stuck, epochs) for epochs in (5, 10, 20, 30)]
    values = [each.log_epochs for each in predictions if each is not None]
    assert len(values) == 4
    assert values == sorted(values)
    assert values[-1] > math.log(30)


def test_an_attempt_without_reference_or_evaluation_has_no_prediction() -> None:
    model = CurveModel(DISTANCES, maximize=True)
    assert model.predict(0, curve(10), 5) is None
    model.learn(0, curve(10), 10)
    assert model.predict(1, MetricCurve((), ()), 5) is None
    assert model.predict(1, curve(10), 0.5) is None
    model.forget_references()
    assert model.predict(1, curve(10), 5) is None


def test_the_spread_is_wide_at_first_and_narrows_with_good_predictions() -> None:
    model = CurveModel(DISTANCES, maximize=True)
    model.learn(0, curve(40), 40)
    first = model.predict(1, curve(40), 16)
    for arm in (1, 2, 3):
        model.learn(arm, curve(30 + 10 * arm), 30 + 10 * arm)
    later = model.predict(1, curve(40), 16)
    assert first.sd == pytest.approx(float(np.interp(math.log(16 / 40), np.log(FRACTIONS), PRIOR_SD)), rel=0.02)
    assert later.sd < 0.8 * first.sd


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.4])
def test_the_intervals_of_predictions_contain_the_epochs_as_often_as_they_say(spread: float) -> None:
    """Jobs whose curves are warped at random: the predictions' errors must match the learned spreads."""
    draw = random.Random(7)
    inside = checked = 0
    squares = []
    for _ in range(60):
        model = CurveModel(DISTANCES, maximize=True)
        for run in range(12):
            arm, total = run % 4, draw.randint(25, 60)
            power = 0.5 * math.exp(draw.gauss(0, spread))
            epochs = tuple(map(float, range(1, total + 1)))
            warped = MetricCurve(epochs, tuple(0.9 * (each / total) ** power for each in epochs))
            for share in (0.15, 0.3, 0.6) if run > 4 else ():
                prediction = model.predict(arm, warped, round(share * total))
                error = (math.log(total) - prediction.log_epochs) / prediction.sd
                squares.append(error**2)
                inside += abs(error) <= 1.645
                checked += 1
            model.learn(arm, warped, total)
    # 90 % intervals: never over-confident, and not so wide as to be of no use.
    assert inside / checked >= 0.85
    assert np.mean(squares) <= 1.3


@settings(max_examples=60, deadline=None)
@given(st.floats(-3, 3), st.floats(0.01, 4), st.floats(-60, 60), st.floats(0.02, 2), st.floats(1e-3, 1e6))
def test_the_moments_of_an_attempt_are_between_those_of_prior_and_prediction(
    mean: float, variance: float, predicted: float, sd: float, epochs: float
) -> None:
    attempt = AttemptEpochs(mean, variance).with_curve(CurvePrediction(predicted, sd))
    assert min(mean, predicted) - 1e-9 <= attempt.mean <= max(mean, predicted) + 1e-9
    assert 0 < attempt.variance < math.inf
    later = attempt.beyond(math.log(epochs))
    assert later.mean >= attempt.mean - 1e-9
    assert 0 <= later.variance < math.inf


def test_a_prediction_that_contradicts_the_prior_moves_it_less_than_a_plausible_one() -> None:
    prior = AttemptEpochs(0.0, 0.1)
    plausible, absurd = (prior.with_curve(CurvePrediction(value, 0.2)).mean for value in (0.6, 8.0))
    assert absurd < plausible


def observed(
    recurrence: int, size: int, epochs: int, outcome: Outcome = Outcome.REACHED, **more: object
) -> Observation:
    observation = Observation(
        recurrence, 0, size, outcome, epochs, 100.0 * epochs, epochs, 300.0, "A", 100.0, 1.0, curve=curve(epochs)
    )
    return replace(observation, **more)  # type: ignore[arg-type]


HISTORY = (observed(0, 16, 20), observed(1, 32, 22), observed(2, 16, 19), observed(3, 32, 23))
CONTEXT = DecisionContext(SIZES, 16, 0.5, 4, 0, HISTORY, 1, gpu_model="A", remaining_recurrences=10, target=TARGET)
TRIAL = Decision(64, ChoiceKind.TRIAL, "", stop_cost_joules=9000.0)


def partial(epochs: int, seen: MetricCurve | None) -> PartialObservation:
    return PartialObservation(64, epochs, 100.0 * epochs, epochs, 300.0, 100.0, 1.0, seen)


def review(seen: MetricCurve | None, decision: Decision = TRIAL) -> float | None:
    return ThompsonSamplingPolicy().review(CONTEXT, decision, partial(15, seen))


def test_a_trial_is_stopped_when_its_curve_shows_that_it_takes_too_long() -> None:
    paid = 0.5 * 100 * 15 + 0.5 * 300 * 15
    assert review(curve(40, seen=15)) == pytest.approx(paid)
    for going_on in (review(curve(20, seen=15)), review(None)):
        assert going_on > paid


def test_a_curve_never_stops_the_incumbent() -> None:
    incumbent = Decision(64, ChoiceKind.INCUMBENT, "")
    assert review(curve(40, seen=15), incumbent) is None


def test_a_stopped_attempt_teaches_its_predicted_epochs() -> None:
    def high_cost(seen: MetricCurve | None) -> float:
        stopped = observed(4, 64, 20, Outcome.STOPPED, curve=seen)
        context = replace(CONTEXT, recurrence=5, observations=(*HISTORY, stopped))
        cost = ThompsonSamplingPolicy().decide(context).arms[3].mean_cost_joules
        assert cost is not None
        return cost

    assert high_cost(curve(24, seen=20)) < high_cost(None) < high_cost(curve(60, seen=20))


def test_repeated_stops_of_one_arm_are_not_independent_evidence() -> None:
    """The curves of an arm deviate from the references alike: a second stop with the same curve adds only a bound."""
    stopped = [observed(4 + i, 64, 8, Outcome.STOPPED, curve=curve(40, seen=8)) for i in range(6)]

    def interval(count: int) -> float:
        context = replace(CONTEXT, recurrence=10, observations=(*HISTORY, *stopped[:count]))
        arm = ThompsonSamplingPolicy().decide(context).arms[3]
        return math.log(arm.high_cost_joules / arm.low_cost_joules)

    assert interval(6) == pytest.approx(interval(1), rel=0.02)


POINTS = st.lists(st.tuples(st.floats(0.1, 60), st.floats(allow_nan=True)), max_size=8)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SIZES), st.sampled_from(list(Outcome)), POINTS), max_size=12), POINTS)
def test_any_curve_gives_a_finite_decision_and_review(
    runs: list[tuple[int, Outcome, list[tuple[float, float]]]], points: list[tuple[float, float]]
) -> None:
    history = tuple(
        observed(i, size, 5 + i, outcome, curve=MetricCurve.from_points(found))
        for i, (size, outcome, found) in enumerate(runs)
    )
    context = replace(CONTEXT, recurrence=len(runs), observations=(observed(0, 16, 20), *history))
    policy = ThompsonSamplingPolicy()
    with mock.patch.object(feasible_arms, "CRASH_BUDGET", 99):
        for arm in policy.decide(context).arms:
            assert arm.mean_cost_joules is None or 0 <= arm.mean_cost_joules < math.inf
        stop = policy.review(context, TRIAL, partial(7, MetricCurve.from_points(points)))
    assert stop is None or 0 <= stop < math.inf
