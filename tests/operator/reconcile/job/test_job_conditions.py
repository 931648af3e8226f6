"""A job's conditions about its target and about learning from another job."""

from collections.abc import Callable
from dataclasses import replace

from support.backends.model_backend import KEY, START, ModelBackend
from wattloop_operator.api.meta import Condition
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Failure, Snapshot
from wattloop_operator.reconcile.actions import WriteJobStatus
from wattloop_operator.reconcile.learning.decision import decision_context
from wattloop_operator.reconcile.next_actions import next_actions


def run_once(backend: ModelBackend, metric: float, epoch: int = 50) -> None:
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, epoch=epoch, metric=metric, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    backend.advance(3600)


def condition_of_type(backend: ModelBackend, kind: str) -> Condition | None:
    return next((each for each in backend.job.status.conditions if each.type == kind), None)


def test_an_unreached_target_has_a_condition_with_the_attempts_and_a_remedy(
    backend_with: Callable[..., ModelBackend],
) -> None:
    backend = backend_with(retries=0, mode="Fixed")
    backend.reconcile()
    assert condition_of_type(backend, "TargetUnreachable") is None
    run_once(backend, metric=0.5)
    run_once(backend, metric=0.6)
    never = condition_of_type(backend, "TargetUnreachable")
    assert never is not None
    assert (never.status, never.reason) == ("True", "NeverReached")
    assert "none of 2 attempts (batch sizes 64) reached accuracy 0.9 within 50 epochs" in never.message
    assert "; the best was 0.6 with batch size 64 after 50 epochs; a threshold of 0.5 would be" in never.message
    assert "reached, at the lowest cost with batch size 64; lower objective.target" in never.message
    events = [(each.warning, each.reason) for each in backend.events]
    assert events == [(True, "TargetUnreachable")]
    assert backend.events[0].message.startswith("team/digits: none of 1 attempts (batch sizes 64)")
    run_once(backend, metric=0.95)
    now = condition_of_type(backend, "TargetUnreachable")
    assert now is not None
    assert now.status == "False"
    assert condition_of_type(backend, "Learns") is None


def test_the_remedy_for_a_script_that_ends_early_is_not_a_larger_limit_of_epochs(
    backend_with: Callable[..., ModelBackend],
) -> None:
    backend = backend_with(retries=0, mode="Fixed")
    run_once(backend, metric=0.5, epoch=7)
    never = condition_of_type(backend, "TargetUnreachable")
    assert never is not None
    assert "; lower objective.target.threshold, let the script train for more than the 7 epochs" in never.message


def attempt_once(backend: ModelBackend, metric: float) -> int:
    """End the running attempt with this metric after all its epochs, and return its batch size."""
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, epoch=50, metric=metric, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    return backend.recurrences[name].spec.batch_size


def test_a_target_that_no_batch_size_reaches_costs_one_attempt_per_recurrence(
    backend_with: Callable[..., ModelBackend],
) -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    metrics = {16: 0.5, 32: 0.7, 64: 0.8, 128: 0.6}
    first: list[int] = []
    while backend.running:
        size = backend.recurrences[backend.running[0]].spec.batch_size
        first.append(attempt_once(backend, metrics[size]))
        assert (condition_of_type(backend, "TargetUnreachable") is None) == bool(backend.running)
    assert (first[0], sorted(first)) == (64, [16, 32, 64, 128])
    for _ in range(3):
        backend.advance(3600)
        backend.reconcile()
        assert backend.recurrences[backend.running[0]].spec.decision.last_attempt
        attempt_once(backend, 0.55)
        assert not backend.running
    never = condition_of_type(backend, "TargetUnreachable")
    assert never is not None
    assert never.status == "True"
    assert "none of 7 attempts" in never.message
    assert "the best was 0.8 with batch size 64 after 50 epochs" in never.message
    assert [each.reason for each in backend.events] == ["TargetUnreachable"]
    backend.advance(3600)
    backend.reconcile()
    attempt_once(backend, 0.95)
    now = condition_of_type(backend, "TargetUnreachable")
    assert now is not None
    assert (now.status, now.reason) == ("False", "Reached")


def test_the_best_metric_of_a_loss_is_the_lowest(backend_with: Callable[..., ModelBackend]) -> None:
    target = {"metric": "loss", "threshold": "0.1", "direction": "Minimize"}
    backend = backend_with(retries=0, mode="Fixed", objective={"target": target, "maxEpochs": 50})
    for metric in (0.5, 0.3, 0.4):
        run_once(backend, metric)
    never = condition_of_type(backend, "TargetUnreachable")
    assert never is not None
    assert "; the best was 0.3 with batch size 64 after 50 epochs; a threshold of 0.5 would be reached" in never.message
    assert "; raise objective.target.threshold" in never.message


def test_the_best_metric_may_be_that_of_an_earlier_evaluation(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(retries=0, mode="Fixed")
    run_once(backend, 0.6)
    backend.reconcile()
    for sequence, (epoch, metric) in enumerate([(10, 0.7), (20, 0.85), (30, 0.85), (40, 0.5)], start=1):
        backend.report(backend.running[0], sequence=sequence, epoch=epoch, metric=metric)
    backend.run_workload(backend.running[0])
    backend.end_workload(backend.running[0])
    backend.reconcile()
    never = condition_of_type(backend, "TargetUnreachable")
    assert never is not None
    assert "the best was 0.85 with batch size 64 after 20 epochs" in never.message


def test_a_crash_of_the_last_attempt_is_retried(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    while backend.running:
        attempt_once(backend, 0.5)
    backend.advance(3600)
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.end_workload(name, Failure.CRASHED, "exit code 1")
    backend.reconcile()
    assert [backend.recurrences[each].spec.attempt for each in backend.running] == [1]


def status_with(backend: ModelBackend, learned: tuple[ObservationRecord, ...], *, known: bool = True) -> Condition:
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    source = snapshot.job if known else None
    result = next_actions(replace(snapshot, source_records=learned, source_job=source), START)
    write = next(action for action in result.actions if isinstance(action, WriteJobStatus))
    return next(each for each in write.status.conditions if each.type == "Transferred")


def test_a_condition_tells_what_was_learned_from_another_job(backend_with: Callable[..., ModelBackend]) -> None:
    source = backend_with(retries=0)
    run_once(source, metric=0.95)
    learned = tuple(source.records.values())
    batch_size = {"default": 64, "candidates": [32, 64], "learnFrom": "source"}
    backend = backend_with(schedule=None, batchSize=batch_size)
    transferred = status_with(backend, learned)
    assert (transferred.status, transferred.reason) == ("True", "LearnedFrom")
    assert "1 attempts of source (batch sizes 64)" in transferred.message
    nothing = status_with(backend, ())
    assert (nothing.status, nothing.reason) == ("False", "NothingKnown")
    assert nothing.message == "source has no runs to learn from yet"
    unknown = status_with(backend, (), known=False)
    assert (unknown.status, unknown.reason) == ("False", "UnknownJob")
    assert "there is no RecurringTrainingJob source" in unknown.message
    other = tuple(replace(record, target_metric="loss") for record in learned)
    nothing = status_with(backend, other)
    assert (nothing.status, nothing.reason) == ("False", "NothingKnown")
    assert nothing.message.endswith("; its 1 attempt(s) have another target, crashed or are forgotten")


def test_the_policy_sees_which_observations_are_from_another_job(backend_with: Callable[..., ModelBackend]) -> None:
    source = backend_with(retries=0)
    run_once(source, metric=0.95)
    snapshot = backend_with(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "source"}).snapshot(KEY)
    assert isinstance(snapshot, Snapshot)
    context = decision_context(replace(snapshot, source_records=tuple(source.records.values())), 0, 0)
    assert [each.from_other_job for each in context.observations] == [True]
