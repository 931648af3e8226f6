"""A job's conditions about its target and about learning from another job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from support.backends.model_backend import KEY, START, ModelBackend
from wattloop_operator.api.meta import Condition
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import WriteJobStatus
from wattloop_operator.reconcile.learning.decision import decision_context
from wattloop_operator.reconcile.next_actions import next_actions


def run_once(backend: ModelBackend, metric: float) -> None:
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, epoch=50, metric=metric, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    backend.advance(3600)


def condition_of_type(backend: ModelBackend, kind: str) -> Condition | None:
    return next((each for each in backend.job.status.conditions if each.type == kind), None)


def test_an_unreached_target_has_a_condition_with_the_attempts_and_a_remedy(
    backend_with: Callable[..., ModelBackend],
) -> None:
    backend = backend_with(retryPolicy={"limit": 0}, policy={"fixed": {}})
    backend.reconcile()
    assert condition_of_type(backend, "TargetReachable") is None
    run_once(backend, metric=0.5)
    run_once(backend, metric=0.6)
    never = condition_of_type(backend, "TargetReachable")
    assert never is not None
    assert (never.status, never.reason) == ("False", "NeverReached")
    assert "none of 2 attempts (batch sizes 64) reached accuracy 0.9 within 50 epochs" in never.message
    assert "lower objective.target.threshold" in never.message
    run_once(backend, metric=0.95)
    now = condition_of_type(backend, "TargetReachable")
    assert now is not None
    assert now.status == "True"
    assert condition_of_type(backend, "Learns") is None


def status_with(backend: ModelBackend, learned: tuple[ObservationRecord, ...]) -> Condition:
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    result = next_actions(replace(snapshot, source_records=learned), START)
    write = next(action for action in result.actions if isinstance(action, WriteJobStatus))
    return next(each for each in write.status.conditions if each.type == "Transferred")


def test_a_condition_tells_what_was_learned_from_another_job(backend_with: Callable[..., ModelBackend]) -> None:
    source = backend_with(retryPolicy={"limit": 0})
    run_once(source, metric=0.95)
    learned = tuple(source.records.values())
    backend = backend_with(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "source"})
    transferred = status_with(backend, learned)
    assert (transferred.status, transferred.reason) == ("True", "LearnedFrom")
    assert "1 attempts of source (batch sizes 64)" in transferred.message
    nothing = status_with(backend, ())
    assert (nothing.status, nothing.reason) == ("False", "NothingKnown")


def test_the_policy_sees_which_observations_are_from_another_job(backend_with: Callable[..., ModelBackend]) -> None:
    source = backend_with(retryPolicy={"limit": 0})
    run_once(source, metric=0.95)
    snapshot = backend_with(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "source"}).snapshot(KEY)
    assert isinstance(snapshot, Snapshot)
    context = decision_context(replace(snapshot, source_records=tuple(source.records.values())), 0, 0)
    assert [each.from_other_job for each in context.observations] == [True]
