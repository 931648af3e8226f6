"""When recurrences start: concurrency, suspension, deadlines, requests, limits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.backends.model_backend import KEY, START, ModelBackend
from wattloop_operator.api.attempt import Result
from wattloop_operator.reconcile.next_actions import next_actions

Reconcile = Callable[[ModelBackend], None]
Backends = Callable[..., ModelBackend]


def reason(backend: ModelBackend) -> str:
    return next(each.reason for each in backend.job.status.conditions if each.type == "Ready")


def test_forbid_lets_a_due_run_wait_for_the_one_that_is_going_on(backend: ModelBackend, settled: Reconcile) -> None:
    settled(backend)
    first = backend.running[0]
    backend.run_workload(first)
    backend.pass_seconds(3 * 3600)
    settled(backend)
    assert backend.running == [first]
    backend.report(first, metric=0.95, finished=True)
    backend.end_workload(first)
    settled(backend)
    second = backend.recurrences[backend.running[0]]
    assert (second.spec.index, (second.spec.scheduled_time - START).total_seconds()) == (1, 3 * 3600)
    assert backend.job.status.counts.missed == 2
    assert [each.reason for each in backend.announced] == ["MissedStarts"]


def test_allow_starts_beside_and_tells_the_policy_what_runs(backend_with: Backends, settled: Reconcile) -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    settled(backend)
    backend.pass_seconds(3600)
    settled(backend)
    assert [backend.recurrences[name].spec.index for name in backend.running] == [0, 1]


def test_replace_ends_the_older_run_first(backend_with: Backends, settled: Reconcile) -> None:
    backend = backend_with(concurrencyPolicy="Replace")
    settled(backend)
    first = backend.running[0]
    backend.run_workload(first)
    backend.pass_seconds(3600)
    settled(backend)
    assert backend.recurrences[first].status.result is Result.CANCELLED
    assert first not in backend.workloads
    assert [backend.recurrences[name].spec.index for name in backend.running] == [1]


def test_a_suspended_job_leaves_what_runs_alone_and_resumes_with_one_run(
    backend: ModelBackend, settled: Reconcile
) -> None:
    settled(backend)
    first = backend.running[0]
    backend.change_spec(suspend=True)
    backend.run_workload(first)
    backend.report(first, metric=0.95, finished=True)
    backend.end_workload(first)
    backend.pass_seconds(1000 * 3600)
    settled(backend)
    assert backend.running == []
    assert reason(backend) == "Suspended"
    backend.change_spec(suspend=False)
    settled(backend)
    assert len(backend.running) == 1
    assert len(backend.recurrences) == 2


def test_a_start_later_than_its_deadline_is_missed_once(backend_with: Backends, settled: Reconcile) -> None:
    backend = backend_with(startingDeadlineSeconds=60)
    backend.pass_seconds(61)
    settled(backend)
    assert backend.running == []
    assert backend.job.status.last_missed_time == START
    assert backend.job.status.counts.missed == 1
    settled(backend)
    assert backend.job.status.counts.missed == 1
    assert [each.reason for each in backend.announced] == ["MissedStart"]
    assert backend.job.status.last_schedule_time is None


def test_missed_run_policy_skip_waits_for_the_next_time(backend_with: Backends, settled: Reconcile) -> None:
    backend = backend_with(missedRunPolicy="Skip")
    backend.pass_seconds(2 * 3600 + 1800)
    settled(backend)
    assert backend.running == []
    backend.pass_seconds(1801)
    settled(backend)
    assert len(backend.running) == 1


def test_a_run_request_is_one_run_however_often_it_is_seen(backend_with: Backends, settled: Reconcile) -> None:
    backend = backend_with(trigger={"manual": {}}, runRequest="2026-03-01")
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True)
    backend.end_workload(name)
    settled(backend)
    backend.delete_by_hand(name)
    settled(backend)
    assert backend.running == []
    backend.change_spec(runRequest="2026-03-02")
    settled(backend)
    assert len(backend.running) == 1


def test_a_finished_recurrence_deleted_by_hand_is_not_run_again(backend: ModelBackend, settled: Reconcile) -> None:
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True)
    backend.end_workload(name)
    settled(backend)
    backend.delete_by_hand(name)
    backend.lose_database()
    settled(backend)
    assert backend.running == []


def test_no_more_than_the_recurrences_asked_for_are_started(backend_with: Backends, settled: Reconcile) -> None:
    backend = backend_with(trigger={"continuous": {}}, maxRecurrences=3)
    for _ in range(5):
        settled(backend)
        for name in backend.running:
            backend.run_workload(name)
            backend.report(name, metric=0.95, finished=True)
            backend.end_workload(name)
        backend.pass_seconds(1)
    settled(backend)
    assert len(backend.records) == 3
    assert reason(backend) == "AllStarted"


@pytest.mark.parametrize(
    ("changes", "refusal", "expected"),
    [
        ({"trigger": {"cron": {"schedule": "0 0 31 2 *"}}}, "", "InvalidSchedule"),
        ({}, "Job is invalid: spec.template.spec.containers[0].image: Required value", "TemplateRejected"),
        ({"suspend": True}, "", "Suspended"),
        ({"reporting": {"source": "Logs"}}, "", "NotSupported"),
        ({"power": {"frequencyPlanRef": {"name": "plan"}}}, "", "NotSupported"),
        ({"parameters": [{"name": "dropout", "default": "0.1", "candidates": ["0.1", "0.2"]}]}, "", "NotSupported"),
    ],
)
def test_a_job_that_cannot_start_says_why(
    backend_with: Backends, settled: Reconcile, changes: dict[str, object], refusal: str, expected: str
) -> None:
    backend = backend_with(**changes)
    backend.refusal = refusal
    settled(backend)
    assert backend.recurrences == {}
    assert reason(backend) == expected


def test_the_next_start_is_when_to_look_again(backend: ModelBackend, settled: Reconcile) -> None:
    settled(backend)
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    result = next_actions(snapshot, backend.now)
    assert result.actions == ()
    assert result.wake_at == snapshot.job.status.next_schedule_time
