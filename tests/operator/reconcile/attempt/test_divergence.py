"""A metric that diverges ends an attempt at once, as a result of its own."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend
from wattloop.wire.environment import RunTarget
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.reconcile.attempt.early_stop import divergence_reason, has_moved_away
from wattloop_planner.metric_curve import MetricCurve

BackendWith = Callable[..., ModelBackend]
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
    backend.end_workload(name)
    backend.reconcile()


def test_a_trial_whose_metric_is_not_finite_ends_and_its_batch_size_is_not_tried_again(
    backend_with: BackendWith,
) -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    size = backend.recurrences[name].spec.batch_size
    backend.report(name, epoch=1, diverged=True, joules=500.0, seconds=5.0)
    progress = backend.recurrences[name].progress
    assert progress is not None
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


def test_a_trial_that_moves_away_from_the_target_is_stopped_and_the_default_is_not(
    backend_with: BackendWith,
) -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    for epoch, metric in enumerate((0.6, 0.05, 0.05, 0.05), start=1):
        backend.report(first, epoch=epoch, metric=metric, sequence=epoch, joules=500.0, seconds=5.0)
    progress = backend.recurrences[first].progress
    assert progress is not None
    assert not progress.stop_requested
    backend.report(first, epoch=10, metric=0.95, sequence=5, joules=10_000.0, seconds=100.0, finished=True)
    end(backend, first)
    backend.advance(3600)
    name = backend.run_until_trial()
    for epoch, metric in enumerate((0.6, 0.05, 0.05, 0.05), start=1):
        backend.report(name, epoch=epoch, metric=metric, sequence=epoch, joules=500.0 * epoch, seconds=5.0 * epoch)
    end(backend, name)
    assert backend.outcomes[name] == Result.DIVERGED


def test_a_default_whose_metric_is_not_finite_is_retried(backend_with: BackendWith) -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, epoch=1, diverged=True, joules=500.0, seconds=5.0)
    end(backend, name)
    assert backend.outcomes[name] == Result.DIVERGED
    assert backend.recurrences[backend.running[0]].spec.attempt == 1


def test_a_metric_that_diverges_after_the_request_to_stop_is_named_beside_it(backend_with: BackendWith) -> None:
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


def test_a_metric_that_is_nan_at_its_second_evaluation_in_an_epoch_is_said_to_be_so(backend_with: BackendWith) -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, epoch=1, metric=0.6, sequence=1, joules=100.0, seconds=1.0)
    backend.report(name, epoch=1, diverged=True, sequence=2, joules=110.0, seconds=1.1)
    recurrence = backend.recurrences[name]
    told = "its metric diverged: from 0.6 it became NaN or infinite after 1 epoch"
    assert divergence_reason(recurrence, recurrence.progress) == told


def test_a_metric_that_has_moved_away_is_not_said_to_be_nan_in_a_later_epoch(backend_with: BackendWith) -> None:
    backend = backend_with(**JOB)
    backend.reconcile()
    recurrence = backend.recurrences[backend.running[0]]
    progress = recurrence.progress.model_copy(
        update={"diverged": True, "epoch": Decimal(5), "metric": Decimal("0.05"), "curve": curve(0.6, 0.05, 0.05, 0.05)}
    )
    assert divergence_reason(recurrence, progress) == "its metric diverged (at last 0.05) after 5 epochs"
