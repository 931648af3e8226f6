"""The policy reviews the cost limit of a trial with the report that shows what its epochs cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, report
from wattloop_operator.api.attempt import Progress
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.reconcile.attempt.progress import progress_after

JOB: dict[str, Any] = {
    "retryPolicy": {"limit": 0},
    "power": {"limit": {"mode": "None"}},
    "batchSize": {"default": 64, "candidates": [16, 32, 64, 128, 256]},
    "maxRecurrences": 100,
}


def trial(backend: ModelBackend) -> str:
    """Run recurrences until the policy tries another batch size, and return that attempt's name."""
    for _ in range(6):
        backend.reconcile()
        name = backend.running[0]
        backend.run_workload(name)
        backend.reconcile()
        if backend.recurrences[name].spec.decision.kind == "Trial":
            return name
        backend.report(name, epoch=10, metric=0.95, joules=10_000.0, seconds=100.0, finished=True)
        backend.end_workload(name)
        backend.reconcile()
        backend.advance(3600)
    raise AssertionError("the policy never tried another batch size")


def progress_with_review(backend: ModelBackend, name: str, **fields: Any) -> Progress:
    recurrence = backend.recurrences[name]
    return review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress_after(recurrence, report(**fields)))


def test_a_trial_with_far_too_expensive_epochs_is_stopped_after_the_first(
    backend_with: Callable[..., ModelBackend],
) -> None:
    backend = backend_with(**JOB)
    name = trial(backend)
    limit = backend.recurrences[name].spec.stop_cost_joules
    assert limit is not None
    # Epochs cost six times those of the default, but the decision's own limit is not reached yet.
    progress = progress_with_review(backend, name, epoch=1, metric=0.2, joules=6_000.0, seconds=60.0)
    assert float(limit) > 0.5 * 6_000 + 0.5 * 400 * 60
    assert progress.reviewed
    assert progress.stop_requested


def test_a_trial_with_cheap_epochs_continues_with_its_new_limit(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(**JOB)
    name = trial(backend)
    progress = progress_with_review(backend, name, epoch=1, metric=0.2, joules=500.0, seconds=5.0)
    assert progress.reviewed
    assert progress.stop_cost_joules is not None
    assert not progress.stop_requested


def test_no_review_happens_before_a_full_epoch_or_while_limits_are_measured(
    backend_with: Callable[..., ModelBackend],
) -> None:
    backend = backend_with(**JOB)
    assert not progress_with_review(backend, trial(backend), epoch=0, joules=6_000.0, seconds=60.0).reviewed
    measuring = backend_with(**{**JOB, "power": {"limit": {"mode": "Auto"}}})
    assert not progress_with_review(measuring, trial(measuring), epoch=1, metric=0.2, joules=6_000.0).reviewed


def test_a_policy_without_reviews_keeps_the_limit_of_the_decision(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(**JOB, policy={"zeus": {}})
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.reconcile()
    assert not progress_with_review(backend, name, epoch=1, metric=0.2).reviewed


@pytest.mark.parametrize("policy", [{"thompsonSampling": {}}, {"fixed": {}}, {"zeus": {}}])
def test_the_cost_ratio_limits_the_attempts_of_every_policy(
    backend_with: Callable[..., ModelBackend], policy: dict[str, object]
) -> None:
    objective = {
        "target": {"metric": "accuracy", "threshold": "0.9"},
        "maxEpochs": 50,
        "energyWeightPercent": 100,
        "earlyStop": {"costRatioPercent": 130},
    }
    backend = backend_with(policy=policy, objective=objective, batchSize={"default": 64, "candidates": [64]})
    limits = []
    for _ in range(3):
        backend.reconcile()
        name = backend.running[0]
        limits.append(backend.recurrences[name].spec.stop_cost_joules)
        backend.run_workload(name)
        backend.report(name, epoch=10, metric=0.95, joules=1000, finished=True)
        backend.end_workload(name)
        backend.reconcile()
        backend.advance(3600)
    assert limits[0] is None
    assert [float(limit) for limit in limits[1:] if limit is not None] == pytest.approx([1300, 1300], rel=0.06)
