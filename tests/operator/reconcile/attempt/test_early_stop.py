"""The policy's second thought about a trial, taken in with the report that shows what its epochs cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.backends.model_backend import KEY, ModelBackend, report
from wattloop_operator.api.attempt import Progress
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.reconcile.attempt.progress import progress_after

Reconcile = Callable[[ModelBackend], None]
JOB: dict[str, Any] = {
    "retryPolicy": {"limit": 0},
    "power": {"limit": {"mode": "None"}},
    "batchSize": {"default": 64, "candidates": [16, 32, 64, 128, 256]},
    "maxRecurrences": 100,
}


def trial(backend: ModelBackend, settled: Reconcile) -> str:
    """Runs the default batch size until the policy tries another one, and returns that attempt's name."""
    for _ in range(6):
        settled(backend)
        name = backend.running[0]
        backend.run_workload(name)
        settled(backend)
        if backend.recurrences[name].spec.decision.kind == "Trial":
            return name
        backend.report(name, epoch=10, metric=0.95, joules=10_000.0, seconds=100.0, finished=True)
        backend.end_workload(name)
        settled(backend)
        backend.pass_seconds(3600)
    raise AssertionError("the policy never tried another batch size")


def taken_in(backend: ModelBackend, name: str, **fields: Any) -> Progress:
    recurrence = backend.recurrences[name]
    return review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress_after(recurrence, report(**fields)))


def test_a_trial_whose_epochs_are_far_too_dear_is_stopped_after_the_first(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(**JOB)
    name = trial(backend, settled)
    bound = backend.recurrences[name].spec.stop_cost_joules
    assert bound is not None
    # Epochs that cost six times those of the default, though the decision's own bound is not reached yet.
    progress = taken_in(backend, name, epoch=1, metric=0.2, joules=6_000.0, seconds=60.0)
    assert float(bound) > 0.5 * 6_000 + 0.5 * 400 * 60
    assert progress.reviewed
    assert progress.stop_requested


def test_a_trial_whose_epochs_are_cheap_goes_on_under_its_new_bound(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(**JOB)
    name = trial(backend, settled)
    progress = taken_in(backend, name, epoch=1, metric=0.2, joules=500.0, seconds=5.0)
    assert progress.reviewed
    assert progress.stop_cost_joules is not None
    assert not progress.stop_requested


def test_nothing_is_thought_of_before_a_whole_epoch_or_while_limits_are_measured(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(**JOB)
    assert not taken_in(backend, trial(backend, settled), epoch=0, joules=6_000.0, seconds=60.0).reviewed
    measuring = backend_with(**{**JOB, "power": {"limit": {"mode": "Auto"}}})
    assert not taken_in(measuring, trial(measuring, settled), epoch=1, metric=0.2, joules=6_000.0).reviewed


def test_a_policy_that_does_not_review_keeps_the_decision_s_bound(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(**JOB, policy={"zeus": {}})
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    settled(backend)
    assert not taken_in(backend, name, epoch=1, metric=0.2).reviewed
