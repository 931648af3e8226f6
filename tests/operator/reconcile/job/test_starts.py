"""When recurrences start: concurrency, suspension, deadlines, requests, limits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.backends.model_backend import KEY, START, ModelBackend
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.reconcile.next_actions import next_actions

Backends = Callable[..., ModelBackend]


def reason(backend: ModelBackend) -> str:
    return next(each.reason for each in backend.job.status.conditions if each.type == "Ready")


def test_with_forbid_a_due_run_waits_for_the_running_one(backend: ModelBackend) -> None:
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    backend.advance(3 * 3600)
    backend.reconcile()
    assert backend.running == [first]
    backend.report(first, epoch=5, metric=0.95, finished=True)
    backend.end_workload(first)
    backend.reconcile()
    second = backend.recurrences[backend.running[0]]
    assert (second.spec.index, (second.spec.scheduled_time - START).total_seconds()) == (1, 3 * 3600)
    assert backend.job.status.counts.missed == 2
    assert [each.reason for each in backend.events] == ["MissedStarts"]


def test_with_allow_a_due_run_starts_beside_the_running_one(backend_with: Backends) -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    backend.reconcile()
    backend.advance(3600)
    backend.reconcile()
    assert [backend.recurrences[name].spec.index for name in backend.running] == [0, 1]


def test_with_replace_the_running_one_is_cancelled_first(backend_with: Backends) -> None:
    backend = backend_with(concurrencyPolicy="Replace")
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    backend.advance(3600)
    backend.reconcile()
    assert backend.recurrences[first].status.result is Result.CANCELLED
    assert first not in backend.workloads
    assert [backend.recurrences[name].spec.index for name in backend.running] == [1]


def test_a_suspended_job_does_not_end_its_run_and_resumes_with_one_run(backend: ModelBackend) -> None:
    backend.reconcile()
    first = backend.running[0]
    backend.change_spec(suspend=True)
    backend.run_workload(first)
    backend.report(first, metric=0.95, finished=True)
    backend.end_workload(first)
    backend.advance(1000 * 3600)
    backend.reconcile()
    assert backend.running == []
    assert reason(backend) == "Suspended"
    backend.change_spec(suspend=False)
    backend.reconcile()
    assert len(backend.running) == 1
    assert len(backend.recurrences) == 2


def test_a_start_after_its_deadline_is_missed_once(backend_with: Backends) -> None:
    backend = backend_with(startingDeadlineSeconds=60)
    backend.advance(61)
    backend.reconcile()
    assert backend.running == []
    assert backend.job.status.last_missed_time == START
    assert backend.job.status.counts.missed == 1
    backend.reconcile()
    assert backend.job.status.counts.missed == 1
    assert [each.reason for each in backend.events] == ["MissedStart"]
    assert backend.job.status.last_schedule_time is None


def test_with_skip_a_missed_run_waits_for_the_next_slot(backend_with: Backends) -> None:
    backend = backend_with(missedRunPolicy="Skip")
    backend.advance(2 * 3600 + 1800)
    backend.reconcile()
    assert backend.running == []
    backend.advance(1801)
    backend.reconcile()
    assert len(backend.running) == 1


def test_a_run_request_starts_one_run(backend_with: Backends) -> None:
    backend = backend_with(trigger={"manual": {}}, runRequest="2026-03-01")
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    backend.delete(name)
    backend.reconcile()
    assert backend.running == []
    backend.change_spec(runRequest="2026-03-02")
    backend.reconcile()
    assert len(backend.running) == 1


def test_a_deleted_recurrence_is_not_run_again(backend: ModelBackend) -> None:
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    backend.delete(name)
    backend.lose_database()
    backend.reconcile()
    assert backend.running == []


def test_a_job_stops_at_its_maximum_number_of_recurrences(backend_with: Backends) -> None:
    backend = backend_with(trigger={"continuous": {}}, maxRecurrences=3)
    for _ in range(5):
        backend.reconcile()
        for name in backend.running:
            backend.run_workload(name)
            backend.report(name, metric=0.95, finished=True)
            backend.end_workload(name)
        backend.advance(1)
    backend.reconcile()
    assert len(backend.records) == 3
    assert reason(backend) == "AllStarted"


@pytest.mark.parametrize(
    ("changes", "refusal", "expected"),
    [
        ({"trigger": {"cron": {"schedule": "0 0 31 2 *"}}}, "", "InvalidSchedule"),
        ({}, "Job is invalid: spec.template.spec.containers[0].image: Required value", "TemplateRejected"),
        ({"suspend": True}, "", "Suspended"),
        ({"reporting": {"source": "Logs", "pattern": "(?P<metric>"}}, "", "InvalidPattern"),
        ({"reporting": {"source": "Logs", "pattern": "accuracy (.*)"}}, "", "InvalidPattern"),
    ],
)
def test_a_job_that_cannot_start_gives_the_reason(
    backend_with: Backends, changes: dict[str, object], refusal: str, expected: str
) -> None:
    backend = backend_with(**changes)
    backend.refusal = refusal
    backend.reconcile()
    assert backend.recurrences == {}
    assert reason(backend) == expected


def test_the_job_is_reconciled_again_at_its_next_start(backend: ModelBackend) -> None:
    backend.reconcile()
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    result = next_actions(snapshot, backend.now)
    assert result.actions == ()
    assert result.wake_at == snapshot.job.status.next_schedule_time
