"""A metric that diverges ends an attempt at once, as a result of its own."""

import math
from decimal import Decimal
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, backend_with
from support.backends.sample_reports import report
from wattloop.wire.environment import RunTarget
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.progress import FinalMetricPrediction, Progress
from wattloop_operator.reconcile.attempt.early_stop import (
    divergence_reason,
    has_moved_away,
    is_review_due,
    review_cost_limit,
    with_stop_request,
)
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.job.target import unreachable_message
from wattloop_planner.metric_curve import MetricCurve

JOB: dict[str, Any] = {
    "power": {"mode": "None"},
    "batchSize": {"default": 64, "candidates": [32, 64, 128]},
    "maxRecurrences": 100,
}
ACCURACY, LOSS = RunTarget("accuracy", 0.94), RunTarget("loss", 0.3, maximize=False)


def curve(*metrics: float) -> MetricCurve | None:
    return MetricCurve(tuple(float(epoch + 1) for epoch in range(len(metrics))), metrics) if metrics else None


@pytest.mark.parametrize(
    ("target", "metrics", "diverged"),
    [
        (LOSS, (2.3, 4.5, 4.5, 4.5), True),
        (LOSS, (2.3, 2.0, 4.5, 9.0, 5.0), True),
        (LOSS, (2.3, 4.5, 4.5), False),
        (LOSS, (2.3, 4.5, 4.0, 4.5), False),
        (LOSS, (2.3, 4.0, 4.0, 4.0), False),
        (LOSS, (2.3, 9.0, 9.0, 9.0, 2.0), False),
        (LOSS, (0.31, 0.33, 0.33, 0.33), False),
        (LOSS, (0.2, 9.0, 9.0, 9.0), False),
        (ACCURACY, (0.6, 0.1, 0.1, 0.1), True),
        # One epoch at the level of chance, as while batch normalisation lags behind the weights.
        (ACCURACY, (0.75, 0.78, 0.81, 0.07), False),
        (ACCURACY, (0.5, 0.1, 0.1, 0.1), False),
        (ACCURACY, (0.93, 0.9, 0.9, 0.9), False),
        (ACCURACY, (0.1, 0.1, 0.1, 0.1), False),
        (ACCURACY, (), False),
    ],
)
def test_a_metric_has_moved_away_if_it_is_far_worse_than_its_start(
    target: RunTarget, metrics: tuple[float, ...], diverged: bool
) -> None:
    assert has_moved_away(curve(*metrics), target) is diverged


def end(backend: ModelBackend, name: str) -> None:
    backend.end_attempt(name)


def test_a_trial_whose_metric_is_not_finite_ends_and_its_batch_size_is_not_tried_again() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    size = backend.recurrences[name].spec.batch_size
    backend.report(name, epoch=1, diverged=True, joules=500.0, seconds=5.0)
    progress = backend.recurrences[name].progress
    assert progress.stop_requested
    assert "diverged" in progress.stop_reason
    end(backend, name)
    assert backend.outcomes[name] == Result.DIVERGED
    later = []
    for _ in range(10):
        backend.reconcile()
        again = backend.running[0]
        later.append(backend.recurrences[again].spec.batch_size)
        backend.run_workload(again)
        backend.report(again, epoch=10, metric=0.95, joules=10_000.0, seconds=100.0, finished=True)
        end(backend, again)
        backend.advance(3600)
    assert size not in later
    notes = {arm.batch_size: (arm.pruned, arm.note) for arm in backend.job.status.arms}
    assert notes[size] == (True, "diverged")
    assert not any(pruned for other, (pruned, _) in notes.items() if other != size)


def test_a_trial_that_moves_away_from_the_target_is_stopped_and_the_default_is_not() -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    for epoch, metric in enumerate((0.6, 0.05, 0.05, 0.05), start=1):
        backend.report(first, epoch=epoch, metric=metric, sequence=epoch, joules=500.0, seconds=5.0)
    assert not backend.recurrences[first].progress.stop_requested
    backend.report(first, epoch=10, metric=0.95, sequence=5, joules=10_000.0, seconds=100.0, finished=True)
    end(backend, first)
    backend.advance(3600)
    name = backend.run_until_trial()
    for epoch, metric in enumerate((0.6, 0.05, 0.05, 0.05), start=1):
        backend.report(name, epoch=epoch, metric=metric, sequence=epoch, joules=500.0 * epoch, seconds=5.0 * epoch)
    end(backend, name)
    assert backend.outcomes[name] == Result.DIVERGED


def test_a_default_whose_metric_is_not_finite_is_retried() -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, epoch=1, diverged=True, joules=500.0, seconds=5.0)
    end(backend, name)
    assert backend.outcomes[name] == Result.DIVERGED
    assert backend.recurrences[backend.running[0]].spec.attempt == 1


def test_a_metric_that_diverges_after_the_request_to_stop_is_named_beside_it() -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    backend.report(first, epoch=10, metric=0.95, joules=10_000.0, seconds=100.0, finished=True)
    end(backend, first)
    backend.advance(3600)
    name = backend.run_until_trial()
    backend.report(name, epoch=2, metric=0.6, sequence=1, joules=100_000.0, seconds=1000.0)
    backend.report(name, epoch=3, diverged=True, sequence=2, joules=150_000.0, seconds=1500.0)
    end(backend, name)
    message = backend.recurrences[name].status.message
    assert message.startswith(
        "its metric diverged: from 0.6 it became NaN or infinite after 3 epochs; before, it had cost "
    )


def test_a_metric_that_is_nan_at_its_second_evaluation_in_an_epoch_is_said_to_be_so() -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, epoch=1, metric=0.6, sequence=1, joules=100.0, seconds=1.0)
    backend.report(name, epoch=1, diverged=True, sequence=2, joules=110.0, seconds=1.1)
    recurrence = backend.recurrences[name]
    told = "its metric diverged: from 0.6 it became NaN or infinite after 1 epoch"
    assert divergence_reason(recurrence, recurrence.progress) == told


def test_a_metric_that_has_moved_away_is_not_said_to_be_nan_in_a_later_epoch() -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    recurrence = backend.recurrences[backend.running[0]]
    progress = recurrence.progress.model_copy(
        update={"diverged": True, "epoch": Decimal(5), "metric": Decimal("0.05"), "curve": curve(0.6, 0.05, 0.05, 0.05)}
    )
    assert divergence_reason(recurrence, progress) == "its metric diverged (at last 0.05) after 5 epochs"


EPOCHS = 50


def metric_after(epoch: int, end: float = 0.6) -> float:
    return round(end * (1 - math.exp(-epoch / 4)), 6)


def train(backend: ModelBackend, name: str, end: float = 0.6, *, ends: bool = True) -> Progress:
    """Report all epochs, each reviewed as the reporting API does, until the attempt is asked to stop."""
    backend.run_workload(name)
    for epoch in range(1, EPOCHS + 1):
        recurrence = backend.recurrences[name]
        fields: dict[str, Any] = {"sequence": epoch, "epoch": epoch, "metric": metric_after(epoch, end)}
        progress = progress_after(recurrence, report(**fields, joules=100.0 * epoch, seconds=float(epoch)))
        progress = review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress)
        progress = with_stop_request(recurrence, progress)
        backend.recurrences[name] = backend._versioned(recurrence.model_copy(update={"progress": progress}))
        if progress.stop_requested:
            break
    if ends:
        backend.end_attempt(name)
    return progress


def next_attempt(backend: ModelBackend) -> str:
    backend.reconcile_after(3600)
    return backend.running[0]


def test_the_first_run_is_whole_and_later_ones_end_at_their_plateau_without_a_retry() -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    first = train(backend, backend.running[0])
    assert (first.stop_requested, first.final_metric, first.epoch) == (False, None, EPOCHS)
    name = backend.running[0]
    second = train(backend, name)
    status = backend.recurrences[name].status
    assert status.result == "Plateaued"
    assert second.epoch < EPOCHS / 2
    assert status.message.startswith(f"accuracy is at its plateau after {second.epoch} epochs: it is predicted to end")
    assert "and to reach 0.9 with a probability of 0.0" in status.message
    assert not backend.running
    for _ in range(3):
        name = next_attempt(backend)
        train(backend, name)
        assert backend.recurrences[name].status.result == "Plateaued"
        assert not backend.running


def test_the_prediction_has_an_interval_and_the_chance_to_reach() -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    train(backend, backend.running[0])
    found = train(backend, backend.running[0], ends=False).final_metric
    assert found.low <= Decimal("0.6") <= found.high
    assert found.low <= found.metric <= found.high
    assert 0 < found.reach_percent < 1
    assert found.plateau


def test_the_condition_names_the_threshold_that_would_be_reached_at_the_lowest_cost() -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    train(backend, backend.running[0])
    train(backend, backend.running[0])
    message = unreachable_message(backend.job.status.conditions)
    assert "none of 2 attempts" in message
    assert "the best was 0.599" in message
    assert "; a threshold of 0.59" in message
    assert " would be reached, at the lowest cost with batch size " in message
    assert [each.reason for each in backend.events] == ["TargetUnreachable"]


def test_the_condition_is_false_while_further_batch_sizes_may_reach() -> None:
    backend = backend_with(retries=0)
    backend.reconcile()
    train(backend, backend.running[0], 0.85)
    [found] = [each for each in backend.job.status.conditions if each.type == "TargetUnreachable"]
    assert (found.status, found.reason) == ("False", "NotReachedYet")
    assert found.message.endswith("; the next recurrences try further batch sizes")
    assert not backend.events


def test_another_template_is_not_judged_by_the_whole_runs_of_the_one_before() -> None:
    backend = backend_with(retries=0)
    backend.reconcile()
    train(backend, backend.running[0])
    template = {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "better"}]}}}}
    backend.change_spec(template=template)
    progress = train(backend, next_attempt(backend))
    assert (progress.stop_requested, progress.final_metric) == (False, None)


def test_mode_advise_ends_no_attempt_at_its_plateau() -> None:
    backend = backend_with(mode="Advise", retries=0)
    backend.reconcile()
    for _ in range(3):
        assert not train(backend, backend.running[0]).stop_requested
        next_attempt(backend)


def test_an_attempt_that_reached_its_target_is_not_stopped_by_its_prediction() -> None:
    backend = backend_with()
    backend.reconcile()
    recurrence = backend.recurrences[backend.running[0]]
    number = Decimal("0.6")
    found = FinalMetricPrediction(metric=number, low=number, high=number, reach_percent=number, plateau=True)
    progress = Progress(reached=True, final_metric=found)
    assert with_stop_request(recurrence, progress) is progress
    assert not is_review_due(recurrence, progress)
