"""What a job's conditions say of the target and of what was learned from another job."""

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

Reconcile = Callable[[ModelBackend], None]


def ran(backend: ModelBackend, settled: Reconcile, metric: float) -> None:
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, epoch=50, metric=metric, finished=True)
    backend.end_workload(name)
    settled(backend)
    backend.pass_seconds(3600)


def of_kind(backend: ModelBackend, kind: str) -> Condition | None:
    return next((each for each in backend.job.status.conditions if each.type == kind), None)


def test_a_target_that_nothing_reached_says_what_was_tried_and_the_way_out(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(retryPolicy={"limit": 0}, policy={"fixed": {}})
    settled(backend)
    assert of_kind(backend, "TargetReachable") is None
    ran(backend, settled, metric=0.5)
    ran(backend, settled, metric=0.6)
    never = of_kind(backend, "TargetReachable")
    assert never is not None
    assert (never.status, never.reason) == ("False", "NeverReached")
    assert "none of 2 attempts (batch sizes 64) reached accuracy 0.9 within 50 epochs" in never.message
    assert "lower objective.target.threshold" in never.message
    ran(backend, settled, metric=0.95)
    now = of_kind(backend, "TargetReachable")
    assert now is not None
    assert now.status == "True"
    assert of_kind(backend, "Learns") is None


def status_with(backend: ModelBackend, learned: tuple[ObservationRecord, ...]) -> Condition:
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    result = next_actions(replace(snapshot, source_records=learned), START)
    write = next(action for action in result.actions if isinstance(action, WriteJobStatus))
    return next(each for each in write.status.conditions if each.type == "Transferred")


def test_what_was_taken_over_from_another_job_is_said(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    teacher = backend_with(retryPolicy={"limit": 0})
    ran(teacher, settled, metric=0.95)
    learned = tuple(teacher.records.values())
    backend = backend_with(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "teacher"})
    said = status_with(backend, learned)
    assert (said.status, said.reason) == ("True", "LearnedFrom")
    assert "1 attempts of teacher (batch sizes 64)" in said.message
    nothing = status_with(backend, ())
    assert (nothing.status, nothing.reason) == ("False", "NothingKnown")


def test_the_policy_sees_another_job_s_runs_as_another_job_s(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    teacher = backend_with(retryPolicy={"limit": 0})
    ran(teacher, settled, metric=0.95)
    snapshot = backend_with(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "teacher"}).snapshot(KEY)
    assert isinstance(snapshot, Snapshot)
    asked = decision_context(replace(snapshot, source_records=tuple(teacher.records.values())), 0, 0)
    assert [each.from_other_job for each in asked.observations] == [True]
