"""The policy reviews the cost limit of a trial when its epochs' cost is known, and at each evaluation."""

from dataclasses import replace
from typing import Any

import pytest

from support.backends.curved_runs import CANDIDATES, EPOCH_JOULES, EPOCH_SECONDS, TARGET, curved_records, metric_after
from support.backends.model_backend import KEY, ModelBackend, backend_with
from support.backends.sample_reports import report
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit, with_stop_request
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.decision import review_context

JOB: dict[str, Any] = {
    "retries": 0,
    "power": {"mode": "None"},
    "batchSize": {"default": 64, "candidates": [16, 32, 64, 128, 256]},
    "maxRecurrences": 100,
}


def progress_with_review(backend: ModelBackend, name: str, **fields: Any) -> Progress:
    """The progress that the reporting API would write."""
    recurrence = backend.recurrences[name]
    progress = progress_after(recurrence, report(**fields))
    return with_stop_request(recurrence, review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress))


def report_with_review(backend: ModelBackend, name: str, **fields: Any) -> Progress:
    """The same, written."""
    progress = progress_with_review(backend, name, **fields)
    backend.merge(backend.recurrences[name], progress)
    return progress


def test_a_trial_with_far_too_expensive_epochs_is_stopped_after_the_first() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    limit = backend.recurrences[name].spec.stop_cost_joules
    # Epochs cost six times those of the default, but the decision's own limit is not reached yet.
    progress = progress_with_review(backend, name, epoch=1, metric=0.2, joules=6_000.0, seconds=60.0)
    assert float(limit) > 0.5 * 6_000 + 0.5 * 400 * 60
    assert progress.reviewed_epoch == 1
    assert progress.stop_requested


def test_a_trial_on_gpus_that_others_use_too_is_not_stopped_by_their_energy() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    progress = progress_with_review(backend, name, epoch=2, metric=0.2, joules=9e9, seconds=60.0, shared=True)
    assert (progress.reviewed_epoch, progress.stop_requested) == (None, False)


def test_a_trial_with_cheap_epochs_continues_with_its_new_limit() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    progress = progress_with_review(backend, name, epoch=1, metric=0.2, joules=500.0, seconds=5.0)
    assert progress.reviewed_epoch == 1
    assert progress.stop_cost_joules is not None
    assert not progress.stop_requested


def test_no_review_happens_before_a_full_epoch_or_while_limits_are_measured() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    assert progress_with_review(backend, name, epoch=0, joules=6_000.0, seconds=60.0).reviewed_epoch is None
    measuring = backend_with(**{**JOB, "power": {"mode": "Auto"}})
    name = measuring.run_until_trial()
    assert progress_with_review(measuring, name, epoch=1, metric=0.2, joules=6_000.0).reviewed_epoch is None


def test_a_policy_without_reviews_keeps_the_limit_of_the_decision() -> None:
    backend = backend_with(**{**JOB, "batchSize": {"policy": "Zeus"}})
    recurrence = backend.recurrences[backend.start_attempt()]
    progress = progress_after(recurrence, report(epoch=1, metric=0.2))
    assert review_cost_limit(fail_to_read, recurrence, progress) is progress


def fail_to_read() -> Snapshot:
    raise AssertionError("the state of the job was read")


@pytest.mark.parametrize(
    "fields",
    [
        # Another epoch without an evaluation, an older report, and the end.
        {"sequence": 3, "epoch": 2},
        {"sequence": 1, "epoch": 1, "metric": 0.2},
        {"sequence": 3, "epoch": 2, "metric": 0.3, "finished": True},
        {"sequence": 3, "epoch": 2, "metric": 0.95},
    ],
)
def test_a_report_without_a_new_evaluation_of_a_run_that_continues_is_not_reviewed(fields: dict[str, Any]) -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    before = report_with_review(backend, name, sequence=2, epoch=1, metric=0.2, joules=500.0, seconds=5.0)
    assert before.reviewed_epoch == 1
    recurrence = backend.recurrences[name]
    progress = progress_after(recurrence, report(joules=900.0, seconds=9.0, **fields))
    assert review_cost_limit(fail_to_read, recurrence, progress) is progress


def test_each_new_evaluation_is_reviewed_and_changes_the_limit() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    limits = []
    for epoch, joules in enumerate([500.0, 900.0, 1400.0], start=1):
        fields: dict[str, Any] = {"metric": 0.1 * epoch, "joules": joules, "seconds": joules / 100}
        progress = report_with_review(backend, name, sequence=epoch, epoch=epoch, **fields)
        assert (progress.reviewed_epoch, progress.stop_requested) == (epoch, False)
        limits.append(progress.stop_cost_joules)
    assert None not in limits
    assert len(set(limits)) == 3


def test_a_run_is_stopped_at_a_later_evaluation_whose_epochs_have_become_too_expensive() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    progress = report_with_review(backend, name, sequence=1, epoch=1, metric=0.2, joules=500.0, seconds=5.0)
    assert not progress.stop_requested
    progress = report_with_review(backend, name, sequence=2, epoch=2, metric=0.3, joules=60_000.0, seconds=600.0)
    assert progress.stop_requested
    # Better news do not withdraw the request, and no review follows.
    later = progress_with_review(backend, name, sequence=3, epoch=30, metric=0.8, joules=60_000.0, seconds=600.0)
    assert (later.stop_requested, later.stop_reason) == (True, progress.stop_reason)
    assert (later.stop_cost_joules, later.reviewed_epoch) == (progress.stop_cost_joules, 2)


@pytest.mark.parametrize(("curves", "stopped"), [(True, True), (False, False)])
def test_a_trial_is_stopped_by_the_curve_that_lags_behind_those_of_earlier_runs(curves: bool, stopped: bool) -> None:
    sizes = {"default": 64, "candidates": list(CANDIDATES)}
    backend = backend_with(**{**JOB, "batchSize": sizes}, objective={"target": TARGET, "maxEpochs": 50})
    for record in curved_records("job-uid", KEY.namespace, KEY.name):
        # The GPUs of `report`.
        known = replace(record, gpu_product="NVIDIA A100", max_power_watts=400.0)
        backend.records[(record.recurrence, 0)] = known if curves else replace(known, curve=None)
    backend.reconcile()
    (name,) = backend.running
    spec = backend.recurrences[name].spec
    assert (spec.batch_size, spec.decision.kind) == (128, "Trial")
    backend.run_workload(name)
    backend.reconcile()
    for epoch in range(1, 20):
        usage: dict[str, Any] = {"joules": EPOCH_JOULES * epoch, "seconds": EPOCH_SECONDS * epoch}
        progress = report_with_review(
            backend, name, sequence=epoch, epoch=epoch, metric=metric_after(epoch, 40), **usage
        )
        if progress.stop_requested:
            break
    assert (progress.stop_requested, epoch > 1) == (stopped, True)
    assert ("going on would cost more than it could save" in progress.stop_reason) is stopped
    backend.end_attempt(name)
    record = backend.records[(4, 0)]
    assert record.result == ("Stopped" if stopped else "Exhausted")
    assert record.curve.metrics == tuple(metric_after(each, 40) for each in range(1, epoch + 1))


def test_a_review_precedes_the_comparison_with_an_older_limit() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    fields: dict[str, Any] = {"metric": 0.2, "joules": 500.0, "seconds": 5.0}
    reviewed = report_with_review(backend, name, sequence=1, epoch=1, **fields)
    assert reviewed.stop_cost_joules is not None
    recurrence = backend.recurrences[name]
    # An earlier review allowed less than the attempt has cost by now.
    backend.recurrences[name] = recurrence.model_copy(
        update={"progress": reviewed.model_copy(update={"stop_cost_joules": 10})}
    )
    assert progress_with_review(backend, name, sequence=2, epoch=2).stop_requested
    progress = progress_with_review(backend, name, sequence=2, epoch=2, metric=0.3, joules=600.0, seconds=6.0)
    assert not progress.stop_requested


def test_a_review_judges_an_attempt_by_the_objective_that_it_was_started_for() -> None:
    backend = backend_with(**JOB)
    name = backend.run_until_trial()
    fields: dict[str, Any] = {"sequence": 1, "epoch": 1, "metric": 0.2, "joules": 700.0, "seconds": 7.0}
    unchanged = progress_with_review(backend, name, **fields)
    recurrence = backend.recurrences[name]
    objective = {"target": {"metric": "loss", "threshold": "0.1", "direction": "Minimize"}, "maxEpochs": 7}
    others = [size for size in JOB["batchSize"]["candidates"] if size != recurrence.spec.batch_size]
    backend.change_spec(
        objective={**objective, "energyWeightPercent": 90}, batchSize={"default": 64, "candidates": others}
    )
    assert progress_with_review(backend, name, **fields) == unchanged
    context = review_context(backend.state, recurrence)
    assert context.target == recurrence.spec.target.run_target
    assert (context.max_epochs, context.eta) == (50, 0.5)
    assert recurrence.spec.batch_size in context.batch_sizes
    assert not any(each.other_target for each in context.observations)


def test_a_review_uses_what_ended_after_the_decision_and_not_the_attempt_itself() -> None:
    backend = backend_with(**JOB, concurrencyPolicy="Allow")
    name = backend.run_until_trial()
    index = backend.recurrences[name].spec.index
    backend.reconcile_after(3600)
    (_, later) = backend.running
    backend.run_workload(later)
    backend.finish(later, epoch=10, metric=0.95, joules=10_000.0, seconds=100.0)
    context = review_context(backend.state, backend.recurrences[name])
    assert (context.recurrence, context.running) == (index, ())
    assert [each.recurrence for each in context.observations] == [*range(index), index + 1]


@pytest.mark.parametrize(
    ("mode", "policy"), [("Optimize", "ThompsonSampling"), ("Optimize", "Zeus"), ("Fixed", "Zeus")]
)
def test_no_attempt_may_cost_more_than_twice_the_cheapest_batch_size(mode: str, policy: str) -> None:
    objective = {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 50, "energyWeightPercent": 100}
    backend = backend_with(mode=mode, objective=objective, batchSize={"candidates": [64], "policy": policy})
    limits = []
    for _ in range(3):
        backend.reconcile()
        name = backend.running[0]
        limits.append(backend.recurrences[name].spec.stop_cost_joules)
        backend.run_workload(name)
        backend.finish(name, epoch=10, metric=0.95, joules=1000)
        backend.advance(3600)
    assert limits[0] is None
    assert [float(limit) for limit in limits[1:] if limit is not None] == pytest.approx([2000, 2000], rel=0.06)
