"""The curve of an attempt's metric: what reports add to it, and what remains of it in bounded size."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import job
from support.test_sets.parameters import exhaustive_after
from wattloop.wire.training_messages import MAX_NUMBER, Report
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.decision import Attempt, decide

AT = datetime(2026, 3, 1, tzinfo=UTC)
ACCURACY = {"metric": "accuracy", "threshold": "1e9"}
LOSS = {"metric": "loss", "threshold": "-1e9", "direction": "Minimize"}
Points = list[tuple[float, float]]


def decided(target: dict[str, str]) -> TrainingAttempt:
    return decide(Snapshot(job(objective={"target": target, "maxEpochs": 50})), Attempt(0, 0, "slot", AT))


DECIDED = {True: decided(ACCURACY), False: decided(LOSS)}


def after(recurrence: TrainingAttempt, report: Report) -> TrainingAttempt:
    """The recurrence with this report, as it is read again after a write."""
    progress = Progress.from_wire(progress_after(recurrence, report).to_wire())
    return recurrence.model_copy(update={"progress": progress})


def curve_of(reports: Sequence[Report], *, maximize: bool = True) -> Points:
    recurrence = DECIDED[maximize]
    for report in reports:
        recurrence = after(recurrence, report)
    progress = recurrence.progress
    return [] if progress.curve is None else list(zip(progress.curve.epochs, progress.curve.metrics, strict=True))


def evaluations(points: Sequence[tuple[float, float]]) -> list[Report]:
    """One report for each evaluation."""
    return [
        Report(process="p", sequence=number, epoch=epoch, metric=metric, evaluations=number)
        for number, (epoch, metric) in enumerate(points, start=1)
    ]


FIRST, SECOND, THIRD = evaluations([(1.0, 0.5), (2.0, 0.8), (3.0, 0.7)])
RESTARTED = Report(process="p", sequence=10, epoch=1.0, metric=0.6, evaluations=1)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([FIRST, SECOND, THIRD], [(1, 0.5), (2, 0.8), (3, 0.7)]),
        # Twice, late, and out of order: an older report adds nothing.
        ([FIRST, FIRST, THIRD, SECOND, THIRD], [(1, 0.5), (3, 0.7)]),
        # A report without a new evaluation repeats the metric of the one before.
        ([FIRST, replace(SECOND, metric=0.5, evaluations=1), THIRD], [(1, 0.5), (3, 0.7)]),
        ([replace(FIRST, metric=None, evaluations=0), SECOND], [(2, 0.8)]),
        # Only rank 0 evaluates.
        ([FIRST, replace(SECOND, rank=1)], [(1, 0.5)]),
        # The better one of two evaluations at the same epoch.
        ([FIRST, replace(SECOND, epoch=1.0)], [(1, 0.8)]),
        ([SECOND, replace(THIRD, epoch=2.0)], [(2, 0.8)]),
        # An evaluation before any training is no point of the curve.
        ([replace(FIRST, epoch=0.0), SECOND], [(2, 0.8)]),
        ([replace(FIRST, epoch=1e-13), SECOND], [(2, 0.8)]),
        # A process that restarts continues the epochs of the one before.
        ([FIRST, SECOND, RESTARTED, replace(RESTARTED, sequence=11, epoch=2.5, evaluations=2, metric=0.9)],
         [(1, 0.5), (2, 0.8), (3, 0.6), (4.5, 0.9)]),
        # Epochs that fall by less than their rounding are no restart.
        ([SECOND, replace(THIRD, epoch=2.0 - 1e-10, metric=0.9)], [(2, 0.9)]),
        ([replace(FIRST, epoch=MAX_NUMBER), replace(SECOND, epoch=MAX_NUMBER)], [(MAX_NUMBER, 0.8)]),
    ],
)  # fmt: skip
def test_each_new_evaluation_is_a_point(reports: list[Report], expected: Points) -> None:
    assert curve_of(reports) == expected


def test_of_two_losses_at_the_same_epoch_the_lower_one_counts() -> None:
    assert curve_of([replace(FIRST, epoch=2.0), SECOND], maximize=False) == [(2, 0.5)]


REPORTS = st.builds(
    Report,
    sequence=st.integers(0, 300),
    epoch=st.floats(0, 100) | st.sampled_from([1e-300, 1e-12, 1 / 3, MAX_NUMBER]),
    metric=st.none() | st.floats(-MAX_NUMBER, MAX_NUMBER),
    evaluations=st.integers(0, 300),
    rank=st.integers(0, 1),
)


@given(st.lists(REPORTS, max_size=100), st.booleans())
def test_the_epochs_of_a_curve_rise_in_bounded_size_whatever_is_reported(reports: list[Report], maximize: bool) -> None:
    curve = curve_of(reports, maximize=maximize)
    assert len(curve) <= MAX_CURVE_POINTS
    assert all(earlier[0] < later[0] for earlier, later in pairwise([(0.0, 0.0), *curve]))


steps = st.tuples(st.floats(0.01, 5), st.floats(-10, 10))


@given(st.lists(steps, min_size=1, max_size=200), st.booleans())
def test_a_thinned_curve_keeps_the_first_the_latest_and_the_best_evaluation(
    steps: list[tuple[float, float]], maximize: bool
) -> None:
    epoch, points = 0.0, []
    for step, metric in steps:
        # Values that the wire form of a number represents exactly.
        epoch = round(epoch + step, 6)
        points.append((epoch, round(metric, 6)))
    curve = curve_of(evaluations(points), maximize=maximize)
    assert set(curve) <= set(points)
    assert len(curve) == min(len(points), MAX_CURVE_POINTS)
    assert (curve[0], curve[-1]) == (points[0], points[-1])
    best = max if maximize else min
    assert best(metric for _, metric in curve) == best(metric for _, metric in points)


@pytest.mark.parametrize("count", exhaustive_after([100, 1_000]))
def test_a_thinned_curve_is_spread_over_all_epochs(count: int) -> None:
    curve = curve_of(evaluations([(float(epoch), epoch / count) for epoch in range(1, count + 1)]))
    assert len(curve) == MAX_CURVE_POINTS
    assert max(later[0] - earlier[0] for earlier, later in pairwise(curve)) <= 3 * count / MAX_CURVE_POINTS


@given(
    st.lists(steps, min_size=1, max_size=80),
    st.lists(st.tuples(st.integers(0, 79), st.integers(0, 79)), max_size=100),
)
def test_late_and_repeated_reports_do_not_change_a_curve(
    steps: list[tuple[float, float]], repeated: list[tuple[int, int]]
) -> None:
    reports = evaluations([(float(number), metric) for number, (_, metric) in enumerate(steps, start=1)])
    sent = list(reports)
    for after_report, earlier in sorted(repeated, reverse=True):
        if earlier <= after_report < len(reports):
            sent.insert(after_report + 1, reports[earlier])
    assert curve_of(sent) == curve_of(reports)
