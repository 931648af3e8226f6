"""Attempts that wait in a queue: no cost, no deadline, no hang; shown; decided again; evicted without blame."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.backends.model_backend import KilledError, ModelBackend, backend_with
from support.backends.sample_reports import START
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition
from wattloop_operator.domain.snapshot import Failure, QueueWait, WorkloadPhase
from wattloop_operator.reconcile.job.retry import is_retry_due
from wattloop_operator.reconcile.learning.changed_job import training_digest
from wattloop_operator.reconcile.learning.job_observations import observations

WAIT = QueueWait("team", "WaitingForQuota", "1 more nvidia.com/gpu needed", START)
HOUR_SECONDS = 3600
MAX_RESULTS = 8


def condition_of(backend: ModelBackend, name: str, kind: str) -> Condition | None:
    return next((each for each in backend.recurrences[name].status.conditions if each.type == kind), None)


def queue(backend: ModelBackend, name: str, wait: QueueWait | None = WAIT) -> None:
    """Its workload waits in a queue, or no longer."""
    message = "" if wait is None else str(wait)
    backend.workloads[name] = replace(backend.workloads[name], queue=wait, message=message)


def queued_attempt(backend: ModelBackend) -> str:
    """Start an attempt whose workload waits in a queue; returns its name."""
    backend.reconcile()
    name = backend.running[-1]
    queue(backend, name)
    backend.reconcile()
    return name


def evict(backend: ModelBackend, name: str, failure: Failure = Failure.DISRUPTED) -> None:
    """Its queue suspends it after it has run."""
    backend.workloads[name] = replace(
        backend.workloads[name],
        phase=WorkloadPhase.FAILED,
        failure=failure,
        ended_at=backend.now,
        message="its queue evicted it: Preempted: by a higher priority",
        may_run_again=True,
    )


def finish(backend: ModelBackend, name: str, **figures: Any) -> None:
    backend.finish(name, epoch=10, metric=0.95, **figures)


def test_a_wait_is_shown_with_the_reason_of_the_queue_and_since_when(backend: ModelBackend) -> None:
    name = queued_attempt(backend)
    backend.reconcile_after(600)
    queued, running = condition_of(backend, name, "Queued"), condition_of(backend, name, "Running")
    assert (queued.status, queued.reason) == ("True", "WaitingForQuota")
    assert queued.message == "queue team: 1 more nvidia.com/gpu needed"
    assert queued.last_transition_time == START
    assert (running.status, running.reason) == ("False", "Queued")
    job = {each.type: each for each in backend.job.status.conditions}
    assert job["PodsStarted"].reason == "Queued"
    assert "waits in queue team: WaitingForQuota: 1 more nvidia.com/gpu needed" in job["PodsStarted"].message
    assert (backend.job.status.state, backend.job.status.failure) == ("Waiting", "Queued")
    events = [each for each in backend.events if each.reason == "Queued"]
    assert [each.warning for each in events] == [False]


def test_a_wait_is_no_time_no_cost_no_deadline_and_no_hang() -> None:
    backend = backend_with(activeDeadlineSeconds=300, progressDeadlineSeconds=60)
    name = queued_attempt(backend)
    backend.reconcile_after(2 * HOUR_SECONDS)
    assert backend.running == [name]
    assert backend.recurrences[name].status.start_time is None
    queue(backend, name, None)
    backend.run_workload(name)
    backend.reconcile()
    admitted = condition_of(backend, name, "Queued")
    assert (admitted.status, admitted.reason) == ("False", "Admitted")
    assert admitted.message == "queue team: it waited 7200 s"
    finish(backend, name, joules=10_000.0, seconds=100.0)
    status = backend.recurrences[name].status
    assert status.result == "Reached"
    assert float(status.usage.duration_seconds) == 100
    assert status.start_time == START + timedelta(hours=2)
    assert condition_of(backend, name, "Queued") == admitted


@pytest.mark.parametrize(
    ("policy", "open_after", "first"), [("Forbid", 1, None), ("Allow", 2, None), ("Replace", 1, "Cancelled")]
)
def test_a_slot_that_passes_during_the_wait_follows_the_concurrency_policy(
    policy: str, open_after: int, first: str | None
) -> None:
    backend = backend_with(concurrencyPolicy=policy)
    name = queued_attempt(backend)
    backend.reconcile_after(HOUR_SECONDS)
    assert len(backend.running) == open_after
    assert backend.recurrences[name].status.result == first
    assert (name in backend.workloads) == (first is None)
    assert backend.job.status.next_start == START + timedelta(seconds=2 * HOUR_SECONDS)
    if first is not None:
        over = condition_of(backend, name, "Queued")
        assert (over.status, over.reason) == ("False", "NotAdmitted")


def test_an_eviction_is_disrupted_and_tried_again_without_blame_and_its_workload_is_deleted(
    backend: ModelBackend,
) -> None:
    name = queued_attempt(backend)
    queue(backend, name, None)
    backend.run_workload(name)
    backend.reconcile()
    evict(backend, name)
    assert backend.status_of(name).result == "Disrupted"
    assert "Preempted: by a higher priority" in backend.recurrences[name].status.message
    # It would run again if it stayed.
    assert name not in backend.workloads
    (retried,) = backend.running
    assert backend.recurrences[retried].spec.attempt == 1
    # Nothing is learned from it, so no crash counts against its batch size.
    assert [each.result for each in backend.records.values()] == ["Disrupted"]
    assert observations(backend.records.values()) == ()


def test_an_evicted_training_that_had_reached_its_target_counts(backend: ModelBackend) -> None:
    name = queued_attempt(backend)
    queue(backend, name, None)
    backend.run_workload(name)
    backend.report(name, epoch=10, metric=0.95, joules=10_000.0, seconds=100.0)
    evict(backend, name)
    assert backend.status_of(name).result == "Reached"
    assert name not in backend.workloads
    assert backend.running == []


def waiting_second_attempt(backend: ModelBackend) -> tuple[str, str]:
    """Two attempts of concurrent recurrences: the first runs, the second waits in the queue."""
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    backend.advance(HOUR_SECONDS)
    second = queued_attempt(backend)
    assert first != second
    return first, second


def test_an_attempt_that_waits_is_decided_again_by_results_that_arrive() -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    first, second = waiting_second_attempt(backend)
    size = backend.recurrences[second].spec.batch_size
    for _ in range(MAX_RESULTS):
        backend.advance(HOUR_SECONDS)
        finish(backend, first, joules=10_000.0, seconds=100.0)
        status = backend.recurrences[second].status
        if status.result is not None:
            break
        first = backend.running[-1]
        backend.run_workload(first)
        backend.reconcile()
    assert status.result == "Disrupted"
    assert f"is chosen instead of {size}" in status.message
    assert second not in backend.workloads
    (replacement,) = (each for each in backend.recurrences.values() if each.order == (1, 1))
    assert replacement.spec.batch_size != size
    # It counts as no attempt.
    assert backend.recurrences[second].status.start_time is None


def test_a_trial_that_waits_stays_one_while_other_results_do_not_speak_against_it() -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    finish(backend, backend.start_attempt(), joules=10_000.0, seconds=100.0)
    backend.advance(HOUR_SECONDS)
    trial = queued_attempt(backend)
    assert backend.recurrences[trial].spec.decision.kind == "Trial"
    backend.reconcile_after(HOUR_SECONDS)
    other = backend.running[-1]
    assert other != trial
    backend.run_workload(other)
    finish(backend, other, joules=10_000.0, seconds=100.0)
    assert backend.recurrences[trial].status.result is None


def test_an_attempt_that_waits_keeps_its_decision_and_its_place_without_other_results(backend: ModelBackend) -> None:
    name = queued_attempt(backend)
    for _ in range(5):
        backend.reconcile_after(600)
    assert list(backend.recurrences) == [name]
    assert backend.started[name] == 1


def test_attempts_that_wait_replace_each_other_at_most_once_for_a_result() -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    backend.reconcile()
    first = backend.running[0]
    backend.run_workload(first)
    for _ in range(3):
        backend.advance(HOUR_SECONDS)
        queued_attempt(backend)
    backend.advance(60)
    finish(backend, first, joules=10_000.0, seconds=100.0)
    for _ in range(MAX_RESULTS):
        for name in backend.running:
            queue(backend, name)
        backend.reconcile_after(60)
    attempts = [backend.recurrences[name].spec.attempt for name in backend.running]
    assert len(attempts) == 3
    assert max(attempts) == 1


@pytest.mark.parametrize("mode", ["Fixed", "Advise"])
def test_an_attempt_that_would_be_decided_alike_keeps_its_place(mode: str) -> None:
    backend = backend_with(concurrencyPolicy="Allow", mode=mode)
    first, second = waiting_second_attempt(backend)
    finish(backend, first, joules=10_000.0, seconds=100.0)
    assert backend.recurrences[second].status.result is None
    assert backend.started[second] == 1


def test_an_attempt_that_runs_is_never_decided_again() -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    first, second = waiting_second_attempt(backend)
    queue(backend, second, None)
    backend.run_workload(second)
    backend.reconcile()
    backend.report(first, epoch=1, metric=0.2)
    backend.end_attempt(first, Failure.CRASHED, "CUDA out of memory", exit_code=1)
    assert backend.recurrences[second].status.result is None


def test_a_changed_template_replaces_an_attempt_that_waits(backend: ModelBackend) -> None:
    name = queued_attempt(backend)
    backend.edit(template={"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "new"}]}}}})
    assert backend.recurrences[name].status.result == "Disrupted"
    (retried,) = backend.running
    assert backend.recurrences[retried].spec.template_digest != backend.recurrences[name].spec.template_digest


def test_attempts_that_never_start_are_at_most_a_thousand(backend: ModelBackend) -> None:
    found = backend.recurrences[queued_attempt(backend)]
    replaced = found.status.model_copy(update={"result": Result.DISRUPTED})
    attempts = [
        found.model_copy(update={"spec": found.spec.model_copy(update={"attempt": number}), "status": replaced})
        for number in range(1000)
    ]
    snapshot = backend.state
    assert is_retry_due(snapshot, tuple(attempts[:999]))
    assert not is_retry_due(snapshot, tuple(attempts))


def test_the_last_attempt_is_replaced_by_the_next_run(backend: ModelBackend) -> None:
    name = queued_attempt(backend)
    found = backend.recurrences[name]
    last = found.spec.model_copy(update={"attempt": 999, "template_digest": "0" * 32})
    backend.recurrences[name] = found.model_copy(update={"spec": last})
    status = backend.status_of(name)
    assert status.result == "Disrupted"
    assert "the next run starts with the new one" in status.message
    assert backend.running == []


def test_a_changed_runtime_replaces_an_attempt_that_waits(backend: ModelBackend) -> None:
    backend.runtime_digest = "before"
    name = queued_attempt(backend)
    assert backend.status_of(name).result is None
    backend.runtime_digest = None
    assert backend.status_of(name).result is None, "a runtime that is not known has not changed"
    backend.runtime_digest = "after"
    status = backend.status_of(name)
    assert status.result == "Disrupted"
    assert "spec.template or its training runtime has changed" in status.message


def test_a_runtime_that_changes_before_the_workload_exists_replaces_the_attempt(backend: ModelBackend) -> None:
    """The operator was killed between the two, or a quota refused the workload for a while."""
    backend.runtime_digest, backend.actions_until_killed = "before", 1
    with pytest.raises(KilledError, match="StartWorkload"):
        backend.reconcile()
    (name,) = backend.recurrences
    backend.runtime_digest, backend.actions_until_killed = "after", None
    backend.refusal = "exceeded quota"
    assert backend.status_of(name).result is None, "its successor could not start either"
    backend.refusal = ""
    status = backend.status_of(name)
    assert (status.result, status.usage, backend.started[name]) == ("Disrupted", None, 0)
    assert status.message == (
        "it never started (its workload did not exist yet), and spec.template or its training runtime has changed: "
        "the next attempt starts with the new one, and this one counts as none"
    )
    (replacement,) = backend.running
    assert backend.recurrences[replacement].spec.template_digest == training_digest(backend.state)
