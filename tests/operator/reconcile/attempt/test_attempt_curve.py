"""The curve of an attempt's metric: what reports add to it, and what remains of it in bounded size."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import job
from support.test_sets.parameters import exhaustive_after
from wattloop.wire import training_messages
from wattloop.wire.training_messages import MAX_NUMBER, GpuEnergy, LimitMeasurement, Report
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.report_effect import MAX_GPUS_OF_ATTEMPT, MAX_GPUS_PER_DEVICE, progress_after
from wattloop_operator.reconcile.energy.gpu_node_status import with_recent_power
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.progress_writer import MAX_PROGRESS_BYTES
from wattloop_operator.store.attempt_progress import text_of

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
    st.lists(steps, min_size=1, max_size=80), st.lists(st.tuples(st.integers(0, 79), st.integers(0, 79)), max_size=100)
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


NOW = datetime(2026, 3, 1, tzinfo=UTC)
DECISION = decide(Snapshot(job()), Attempt(0, 0, "slot", NOW))
# The longest representation of each kind of number.
LONG_TIME = 1e10 - 0.01
EARLIER = LONG_TIME - 1.55
LARGEST = Report(
    process="~" * training_messages.MAX_PROCESS_CHARACTERS,
    sequence=2**63 - 1,
    epoch=training_messages.MAX_NUMBER / 3,
    metric=-training_messages.MAX_NUMBER / 3,
    evaluations=2**63 - 1,
    gpu_product="~" * training_messages.MAX_PRODUCT_CHARACTERS,
    max_power_limit_watts=training_messages.MAX_POWER_WATTS,
    power_limit_watts=training_messages.MAX_LIMIT_WATTS,
    power_limit_refusal="~" * training_messages.MAX_REFUSAL_CHARACTERS,
    profile=tuple(LimitMeasurement(9000.0 + watts, 1e14 / 3, 1e10 / 3, 1e-6 / 3 + 1e-6) for watts in range(64)),
)


def hostile_reports(count: int) -> list[Report]:
    """Reports with 64 new GPUs and a new evaluation each, with the longest uuids and numbers."""
    uuids = (f"MIG-GPU-{number:036x}/127/127" for number in itertools.count())
    energy = training_messages.MAX_ENERGY_MILLIJOULES
    return [
        replace(
            LARGEST,
            sequence=LARGEST.sequence - count + report,
            epoch=LARGEST.epoch + 1e3 * report,
            evaluations=LARGEST.evaluations - count + report,
            gpus=tuple(GpuEnergy(next(uuids), energy // 2, energy, EARLIER, LONG_TIME) for _ in range(64)),
        )
        for report in range(count)
    ]


def after_reports(recurrence: TrainingAttempt, reports: list[Report]) -> TrainingAttempt:
    for report in reports:
        received = Report.from_json(report.to_json())
        progress = progress_after(recurrence, received)
        progress = with_recent_power(recurrence.progress, progress, received.gpus, NOW)
        recurrence = recurrence.model_copy(update={"progress": progress})
    return recurrence


def started_with(devices: int) -> TrainingAttempt:
    return DECISION.model_copy(update={"status": DECISION.status.model_copy(update={"devices": devices})})


def gpus_of(recurrence: TrainingAttempt) -> list[str]:
    return [gpu.uuid for gpu in recurrence.progress.gpus]


@pytest.mark.parametrize("devices", [1, 8, 64])
def test_the_number_of_gpus_is_bounded_by_what_the_template_requests(devices: int) -> None:
    assert len(gpus_of(after_reports(started_with(devices), hostile_reports(20)))) == MAX_GPUS_PER_DEVICE * devices


@pytest.mark.parametrize("devices", [0, 1000])
def test_the_number_of_gpus_is_bounded_if_the_template_requests_none_or_many(devices: int) -> None:
    assert len(gpus_of(after_reports(started_with(devices), hostile_reports(20)))) == MAX_GPUS_OF_ATTEMPT


def test_gpus_beyond_the_bound_do_not_replace_those_reported_first() -> None:
    own = replace(LARGEST, sequence=1, gpus=(GpuEnergy("GPU-f", 0, 1000, 1.0, 2.0),))
    later = replace(own, sequence=2**63 - 1, gpus=(GpuEnergy("GPU-f", 0, 5000, 1.0, 6.0),))
    recurrence = after_reports(started_with(1), [own, *hostile_reports(5), later])
    assert "GPU-f" in gpus_of(recurrence)
    assert {gpu.uuid: gpu.energy_millijoules for gpu in recurrence.progress.gpus}["GPU-f"] == 5000


def test_the_largest_progress_is_stored() -> None:
    progress = after_reports(started_with(0), hostile_reports(MAX_CURVE_POINTS + 1)).progress
    wire = progress.to_wire()
    assert len(wire["gpus"]) == MAX_GPUS_OF_ATTEMPT
    assert all("recent" in gpu for gpu in wire["gpus"])
    assert len(wire["curve"]) == MAX_CURVE_POINTS
    assert len(json.dumps(wire["curve"])) < 4096
    assert len(text_of(progress)) <= MAX_PROGRESS_BYTES
