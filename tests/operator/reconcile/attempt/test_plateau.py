"""An attempt at its plateau, from its reports to its result, its retry and the job's condition."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from support.backends.model_backend import KEY, ModelBackend, report
from wattloop_operator.domain.progress import FinalMetricPrediction, Progress
from wattloop_operator.reconcile.attempt.early_stop import is_review_due, review_cost_limit, with_stop_request
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.job.target import unreachable_message

EPOCHS = 50
Backends = Callable[..., ModelBackend]


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
        backend.end_workload(name)
        backend.reconcile()
    return progress


def next_attempt(backend: ModelBackend) -> str:
    backend.advance(3600)
    backend.reconcile()
    return backend.running[0]


def test_the_first_run_is_whole_and_later_ones_end_at_their_plateau_without_a_retry(backend_with: Backends) -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    first = train(backend, backend.running[0])
    assert (first.stop_requested, first.final_metric, first.epoch) == (False, None, EPOCHS)
    name = backend.running[0]
    second = train(backend, name)
    status = backend.recurrences[name].status
    assert status.result == "Plateaued"
    assert second.epoch is not None
    assert second.epoch < EPOCHS / 2
    assert status.message.startswith(f"accuracy is at its plateau after {second.epoch} epochs: it is predicted to end")
    assert "and to reach 0.9 with a probability of 0.0" in status.message
    assert not backend.running
    for _ in range(3):
        name = next_attempt(backend)
        train(backend, name)
        assert backend.recurrences[name].status.result == "Plateaued"
        assert not backend.running


def test_the_prediction_has_an_interval_and_the_chance_to_reach(backend_with: Backends) -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    train(backend, backend.running[0])
    found = train(backend, backend.running[0], ends=False).final_metric
    assert found is not None
    assert found.low <= Decimal("0.6") <= found.high
    assert found.low <= found.metric <= found.high
    assert 0 < found.reach_percent < 1
    assert found.plateau


def test_the_condition_names_the_threshold_that_would_be_reached_at_the_lowest_cost(backend_with: Backends) -> None:
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


def test_the_condition_is_false_while_further_batch_sizes_may_reach(backend_with: Backends) -> None:
    backend = backend_with(retries=0)
    backend.reconcile()
    train(backend, backend.running[0], 0.85)
    [found] = [each for each in backend.job.status.conditions if each.type == "TargetUnreachable"]
    assert (found.status, found.reason) == ("False", "NotReachedYet")
    assert found.message.endswith("; the next recurrences try further batch sizes")
    assert not backend.events


def test_another_template_is_not_judged_by_the_whole_runs_of_the_one_before(backend_with: Backends) -> None:
    backend = backend_with(retries=0)
    backend.reconcile()
    train(backend, backend.running[0])
    template = {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "better"}]}}}}
    backend.change_spec(template=template)
    progress = train(backend, next_attempt(backend))
    assert (progress.stop_requested, progress.final_metric) == (False, None)


def test_mode_advise_ends_no_attempt_at_its_plateau(backend_with: Backends) -> None:
    backend = backend_with(mode="Advise", retries=0)
    backend.reconcile()
    for _ in range(3):
        progress = train(backend, backend.running[0])
        assert not progress.stop_requested
        next_attempt(backend)


def test_an_attempt_that_reached_its_target_is_not_stopped_by_its_prediction(backend_with: Backends) -> None:
    backend = backend_with()
    backend.reconcile()
    recurrence = backend.recurrences[backend.running[0]]
    number = Decimal("0.6")
    found = FinalMetricPrediction(metric=number, low=number, high=number, reach_percent=number, plateau=True)
    progress = Progress(reached=True, final_metric=found)
    assert with_stop_request(recurrence, progress) is progress
    assert not is_review_due(recurrence, progress)
