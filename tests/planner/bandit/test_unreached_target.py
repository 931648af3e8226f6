"""Decisions for a target that no batch size reaches."""

import math
from dataclasses import replace

import pytest

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.bandit.unreached_target import (
    REFERENCE_RECURRENCES,
    closest_arm,
    predicted_final_metric,
    retries_are_futile,
    whole_runs,
)
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome

SIZES = (16, 32, 64, 128)
EPOCHS = 40
# Final metric, speed in epochs, and joules of an epoch: the smallest size costs most and ends worst.
ENDS = {16: 0.80, 32: 0.93, 64: 0.932, 128: 0.90}
JOULES = {16: 400.0, 32: 220.0, 64: 120.0, 128: 80.0}


def curve_of(size: int, epochs: int = EPOCHS) -> MetricCurve:
    points = [(epoch, ENDS[size] * (1 - math.exp(-epoch / 4))) for epoch in range(1, epochs + 1)]
    curve = MetricCurve.from_points(points)
    assert curve is not None
    return curve


def run(recurrence: int, size: int, outcome: Outcome = Outcome.EXHAUSTED, epochs: int = EPOCHS) -> Observation:
    joules = JOULES[size]
    return Observation(
        recurrence,
        0,
        size,
        outcome,
        epochs,
        joules * epochs,
        epochs,
        300.0,
        "A",
        joules,
        1.0,
        curve=curve_of(size, epochs),
    )


def context_of(*runs: Observation, threshold: float = 0.99, recurrence: int | None = None) -> DecisionContext:
    index = len(runs) if recurrence is None else recurrence
    target = RunTarget("accuracy", threshold)
    return DecisionContext(
        SIZES, 64, 1.0, index, 0, tuple(runs), seed=1, gpu_model="A", max_epochs=EPOCHS, target=target
    )


ALL_TRIED = (
    run(0, 64),
    run(1, 16, Outcome.PLATEAUED, 20),
    run(2, 32, Outcome.PLATEAUED, 20),
    run(3, 128, Outcome.PLATEAUED, 20),
)


def test_the_cheapest_size_that_comes_closest_becomes_the_habit_and_not_the_likeliest() -> None:
    decision = ThompsonSamplingPolicy().decide(context_of(*ALL_TRIED))
    assert (decision.batch_size, decision.last_attempt) == (64, True)
    assert decision.reason == (
        "no batch size is expected to reach accuracy 0.99; 64 is the cheapest of those that come closest (0.932); "
        "no retries"
    )


def test_the_cheapest_of_equally_close_sizes_is_compared_at_the_same_level() -> None:
    closest = closest_arm(context_of(*ALL_TRIED), range(len(SIZES)))
    assert SIZES[closest.arm] == 64
    assert 0.91 < closest.threshold < 0.932


def test_the_offered_threshold_of_a_loss_is_above_its_final_value() -> None:
    def of_loss(observation: Observation) -> Observation:
        curve = observation.curve
        return replace(observation, curve=MetricCurve(curve.epochs, tuple(1 - each for each in curve.metrics)))

    context = replace(context_of(*map(of_loss, ALL_TRIED)), target=RunTarget("loss", 0.01, maximize=False))
    closest = closest_arm(context, range(len(SIZES)))
    assert 0.068 < closest.threshold < 0.09


@pytest.mark.parametrize(
    ("curves", "maximize", "threshold"),
    [
        ([(0.5, 0.6, 0.7, 0.8, 0.85)] * 4, True, 0.85),
        ([(1.8, 1.7, 1.6)] * 6, False, 1.6),
        ([(0.5, 0.7, 0.57), (0.5, 0.57, 0.55), (0.5, 0.6, 0.65)], True, 0.57),
        ([(0.1, 0.8537)], True, 0.853),
        ([(3.0, 1.2041), (3.0, 1.2)], False, 1.21),
        ([(0.57,)], True, 0.57),
        ([(100.0, 5230.0), (100.0, 5340.0)], True, 5230.0),
    ],
)
def test_the_offered_threshold_is_what_each_attempt_came_to(
    curves: list[tuple[float, ...]], maximize: bool, threshold: float
) -> None:
    runs = [
        replace(
            run(index, 64, epochs=len(metrics)),
            curve=MetricCurve(tuple(float(epoch + 1) for epoch in range(len(metrics))), metrics),
        )
        for index, metrics in enumerate(curves)
    ]
    target = RunTarget("accuracy", 1e6 if maximize else 0.0, maximize=maximize)
    closest = closest_arm(replace(context_of(*runs), target=target), range(len(SIZES)))
    assert closest.threshold == threshold


def test_a_target_that_was_reached_once_has_no_closest_size_and_no_plateau() -> None:
    context = context_of(*ALL_TRIED, replace(run(4, 64), outcome=Outcome.REACHED))
    assert closest_arm(context, range(len(SIZES))) is None
    assert whole_runs(context) == []
    assert predicted_final_metric(context, curve_of(32, 30), 30) is None


def test_only_recent_whole_runs_of_the_same_training_predict() -> None:
    old = replace(run(0, 64), template_digest="before", image_digest="sha256:a")
    known = context_of(old, recurrence=REFERENCE_RECURRENCES)
    late = context_of(old, recurrence=REFERENCE_RECURRENCES + 1)
    stopped = context_of(run(0, 64, epochs=30))

    def predicts(context: DecisionContext, **digests: str) -> bool:
        return predicted_final_metric(context, curve_of(32, 30), 30, **digests) is not None

    assert predicts(known)
    assert predicts(known, template_digest="before", image_digest="sha256:a")
    assert not predicts(known, template_digest="after")
    assert not predicts(known, image_digest="sha256:b")
    assert not predicts(late)
    assert not predicts(stopped)


@pytest.mark.parametrize(("threshold", "futile"), [(0.95, False), (0.97, False), (1.2, True), (95.0, True)])
def test_a_recurrence_retries_only_while_another_size_may_well_reach(threshold: float, futile: bool) -> None:
    context = replace(context_of(run(0, 64), threshold=threshold), recurrence=0, attempt=1)
    assert retries_are_futile(context) is futile
    assert ThompsonSamplingPolicy().decide(context).last_attempt is futile


def test_a_run_that_still_improved_at_its_end_does_not_make_retries_futile() -> None:
    points = MetricCurve(tuple(map(float, range(1, 41))), tuple(0.01 * each for each in range(1, 41)))
    assert not retries_are_futile(context_of(replace(run(0, 64), curve=points), threshold=95.0))
