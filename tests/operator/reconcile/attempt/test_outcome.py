"""How attempts end: their result, their conditions, and what the policy learns."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, backend_with
from support.backends.sample_reports import report
from wattloop.wire.undelivered_reports import packed, unpacked
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.snapshot import Failure, UndeliveredReports, WorkloadPhase, WorkloadPod
from wattloop_operator.reconcile.learning import job_observations
from wattloop_planner.observations import Observation, Outcome

NEVER_RETRY: dict[str, Any] = {"retries": 0, "activeDeadlineSeconds": 600}


def learned(backend: ModelBackend) -> tuple[Observation, ...]:
    return job_observations.observations(tuple(backend.records.values()))


def crashes(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=1, metric=0.4)
    backend.end_workload(name, Failure.CRASHED, "exit code 1")


def crashes_before_a_report(backend: ModelBackend, name: str) -> None:
    backend.end_workload(name, Failure.CRASHED, "out of memory")


def is_evicted(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=3, metric=0.4)
    backend.end_workload(name, Failure.DISRUPTED, "evicted")


def is_suspended(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=3, metric=0.4)
    before = backend.workloads[name]
    message = "its JobSet is suspended (spec.suspend)"
    pending = replace(before, phase=WorkloadPhase.PENDING, started_at=None, message=message)
    backend.workloads[name] = replace(pending, suspended=True)


def hangs_past_its_deadline(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=7, metric=0.4)
    backend.advance(601)


def hangs_without_reports(backend: ModelBackend, name: str) -> None:
    backend.advance(601)


def reports_nothing(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=50, finished=True)
    backend.end_workload(name)


ENDED_ITSELF = "the script ended the training by itself after 5 epochs of at most 50"


def never_reaches_the_target(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=50, metric=0.89, finished=True)
    backend.end_workload(name)


def reaches_the_target(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=5, metric=0.9, finished=True)
    backend.end_workload(name)


def reaches_the_target_and_crashes(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=5, metric=0.93)
    backend.end_workload(name, Failure.CRASHED, "exit code 1")


def is_deleted(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=2, metric=0.4)
    del backend.workloads[name]


@pytest.mark.parametrize(
    ("happens", "result", "message", "outcome", "epochs"),
    [
        (crashes, Result.CRASHED, "batch size 64: exit code 1", Outcome.CRASHED, 1),
        (crashes_before_a_report, Result.CRASHED, "out of memory", Outcome.CRASHED, 0),
        (is_evicted, Result.DISRUPTED, "nothing is learned", None, None),
        (is_suspended, Result.DISRUPTED, "it had started, and now its JobSet is suspended", None, None),
        (hangs_past_its_deadline, Result.DEADLINE_EXCEEDED, "its last report was for epoch 7", Outcome.STOPPED, 7),
        (hangs_without_reports, Result.DEADLINE_EXCEEDED, "it never reported a metric", None, None),
        (reports_nothing, Result.MISSING_METRIC, "call run.report", None, None),
        (never_reaches_the_target, Result.EXHAUSTED, "after 50 epochs, below the target 0.9", Outcome.EXHAUSTED, 50),
        (reaches_the_target, Result.REACHED, "accuracy reached 0.9 after 5 epochs", Outcome.REACHED, 5),
        (reaches_the_target_and_crashes, Result.REACHED, "accuracy reached 0.93", Outcome.REACHED, 5),
        (is_deleted, Result.CANCELLED, "its workload was deleted", None, None),
    ],
)
def test_each_end_has_its_result_reason_and_observation(
    happens: Callable[[ModelBackend, str], None],
    result: Result,
    message: str,
    outcome: Outcome | None,
    epochs: float | None,
) -> None:
    backend = backend_with(**NEVER_RETRY)
    name = backend.start_attempt()
    happens(backend, name)
    status = backend.status_of(name)
    assert status.result is result
    assert message in status.message
    complete = next(each for each in status.conditions if each.type == "Complete")
    assert (complete.status, complete.reason) == ("True", result.value)
    assert [(each.outcome, each.epochs) for each in learned(backend)] == (
        [] if outcome is None else [(outcome, epochs)]
    )
    last_run = next(each for each in backend.job.status.conditions if each.type == "LastRunSucceeded")
    assert (last_run.status, last_run.reason) == ("True" if result is Result.REACHED else "False", result.value)


def test_a_finished_process_that_does_not_end_is_ended_after_its_grace_period(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.report(name, sequence=1, epoch=5, metric=0.93, finished=True)
    backend.reconcile()
    assert backend.status_of(name, 59).result is None
    assert backend.status_of(name, 2).result is Result.REACHED
    assert name not in backend.workloads


def test_a_run_that_becomes_too_expensive_is_asked_to_stop_and_gives_a_lower_bound() -> None:
    backend = backend_with(**NEVER_RETRY, batchSize={"policy": "Zeus"})
    reaches_the_target(backend, backend.start_attempt())
    backend.reconcile()
    backend.advance(3600)
    second = backend.start_attempt()
    limit = backend.recurrences[second].spec.stop_cost_joules
    backend.report(second, sequence=1, epoch=9, metric=0.5, joules=2 * float(limit), seconds=1.0)
    assert backend.recurrences[second].progress.stop_requested
    assert backend.end_attempt(second).result is Result.STOPPED
    assert learned(backend)[-1].outcome is Outcome.STOPPED


def test_a_target_reached_above_the_cost_limit_counts_as_reached() -> None:
    backend = backend_with(**NEVER_RETRY, batchSize={"policy": "Zeus"})
    reaches_the_target(backend, backend.start_attempt())
    backend.reconcile()
    backend.advance(3600)
    second = backend.start_attempt()
    limit = backend.recurrences[second].spec.stop_cost_joules
    assert (
        backend.finish(second, sequence=1, epoch=9, metric=0.95, joules=3 * float(limit), seconds=1.0).result
        is Result.REACHED
    )


def test_an_arm_that_crashes_three_times_is_not_tried_again() -> None:
    backend = backend_with(retries=20, batchSize={"default": 64, "candidates": [32, 64]})
    backend.reconcile()
    crashed: list[int] = []
    while backend.running:
        name = backend.running[0]
        crashed.append(backend.recurrences[name].spec.batch_size)
        backend.run_workload(name)
        crashes_before_a_report(backend, name)
        backend.reconcile()
    assert sorted(crashed) == [32, 32, 32, 64, 64, 64]
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "NoArmLeft")
    assert "every batch size crashed" in ready.message
    assert [each.reason for each in backend.events] == ["NoArmLeft"]


def test_a_retry_belongs_to_the_same_recurrence_and_its_cost_adds_up(backend: ModelBackend) -> None:
    first = backend.start_attempt()
    never_reaches_the_target(backend, first)
    backend.reconcile()
    second = backend.running[0]
    spec = backend.recurrences[second].spec
    assert (spec.index, spec.attempt, spec.slot) == (0, 1, backend.recurrences[first].spec.slot)
    backend.run_workload(second)
    reaches_the_target(backend, second)
    backend.reconcile()
    recent = backend.job.status.recent_recurrences[0]
    assert (recent.index, recent.result, backend.job.status.totals.recurrences) == (0, Result.REACHED, 1)
    # Two attempts of 1000 J and 10 s.
    assert (recent.gpu_energy_joules, recent.duration_seconds) == (2000, 20)
    assert backend.job.status.totals.recurrences == 1


def test_an_attempt_without_a_metric_is_not_retried(backend: ModelBackend) -> None:
    reports_nothing(backend, backend.start_attempt())
    backend.reconcile()
    assert backend.running == []


@pytest.mark.parametrize(
    ("target", "metric", "message"),
    [
        ({}, 0.907941254456, "accuracy reached 0.9079 after 5 epochs"),
        # Rounded to four digits it would have reached the target.
        ({}, 0.899999995, f"{ENDED_ITSELF}, at accuracy 0.899999995, below the target 0.9"),
        ({"direction": "Minimize"}, 0.95, f"{ENDED_ITSELF}, at accuracy 0.95, above the target 0.9"),
        (
            {"consecutiveEvaluations": 2},
            0.95,
            f"{ENDED_ITSELF}, at accuracy 0.95, the target 0.9 counts after 2 evaluations in a row",
        ),
    ],
)
def test_a_message_says_what_a_training_that_ended_by_itself_came_to_and_rounds_it_only_if_that_changes_nothing(
    target: dict[str, Any], metric: float, message: str
) -> None:
    objective = {"target": {"metric": "accuracy", "threshold": "0.9", **target}, "maxEpochs": 50}
    backend = backend_with(**NEVER_RETRY, objective=objective)
    name = backend.start_attempt()
    backend.finish(name, sequence=1, epoch=5, metric=metric)
    assert backend.recurrences[name].status.message == message


def test_a_workload_that_is_suspended_from_its_start_waits_without_a_deadline() -> None:
    backend = backend_with(**NEVER_RETRY)
    backend.reconcile()
    (name,) = backend.workloads
    backend.workloads[name] = replace(backend.workloads[name], suspended=True)
    assert backend.status_of(name, 86_400).result is None


def test_a_failed_workload_that_may_run_again_is_deleted_once_its_result_is_written() -> None:
    backend = backend_with(**NEVER_RETRY)
    name = backend.start_attempt()
    backend.end_workload(name, Failure.CRASHED, "exit code 1")
    backend.workloads[name] = replace(backend.workloads[name], may_run_again=True)
    assert backend.status_of(name).result is Result.CRASHED
    assert name not in backend.workloads


@pytest.mark.parametrize(
    ("last", "result"),
    [
        ({}, Result.DISRUPTED),
        ({"epoch": 50}, Result.EXHAUSTED),
        ({"finished": True}, Result.EXHAUSTED),
        ({"metric": 0.95}, Result.REACHED),
    ],
)
def test_a_training_that_ended_while_nothing_could_be_received_has_no_result_that_may_be_false(
    last: dict[str, Any], result: Result
) -> None:
    """A training that reached its target then was said to have missed it after the last epoch that was received."""
    backend = backend_with(**NEVER_RETRY)
    name = backend.start_attempt()
    backend.report(name, **({"sequence": 1, "epoch": 2, "metric": 0.75} | last))
    backend.end_workload(name)
    backend.advance(3600)
    backend.observed_since = backend.now
    status = backend.status_of(name)
    assert status.result is result
    if result is Result.DISRUPTED:
        assert "while the operator or its database was away" in status.message
        assert learned(backend) == ()


def left_behind(**fields: Any) -> tuple[UndeliveredReports, ...]:
    """What a process that could not deliver its last report left in its pod."""
    return (UndeliveredReports("digits-0-abc", "pod-uid", packed([replace(report(**fields), process="p")])),)


@pytest.mark.parametrize(
    ("last", "failure", "result"),
    [
        ({"metric": 0.95, "finished": True}, None, Result.REACHED),
        ({"metric": 0.85, "finished": True}, None, Result.EXHAUSTED),
        ({"metric": 0.85, "failure": "SystemExit"}, None, Result.EXHAUSTED),
        ({"metric": 0.85}, None, Result.DISRUPTED),
        ({"metric": 0.95, "finished": True}, Failure.CRASHED, Result.REACHED),
        ({"metric": 0.85, "failure": "ImportError"}, Failure.CRASHED, Result.SCRIPT_ERROR),
        ({"diverged": True, "finished": True}, None, Result.DIVERGED),
    ],
)
def test_what_a_training_left_in_its_pod_while_nothing_could_be_received_decides_its_outcome(
    last: dict[str, Any], failure: Failure | None, result: Result
) -> None:
    """One that ended by itself without its last report, as by os._exit, may have gone on after the report before."""
    backend = backend_with(**NEVER_RETRY)
    name = backend.start_attempt()
    backend.report(name, process="p", sequence=1, epoch=2, metric=0.75, joules=2000.0, seconds=20.0)
    failed_as = last.pop("failure", "")
    last = {"sequence": 9, "epoch": 8, "joules": 9000.0, "seconds": 90.0} | last
    backend.end_workload(name, failure, exit_code=None if failure is None else 1)
    (text,) = left_behind(**last)
    (left,) = unpacked(text.packed)
    text = replace(text, packed=packed([replace(left, failure=failed_as)]))
    backend.workloads[name] = replace(backend.workloads[name], undelivered=(text,))
    backend.advance(3600)
    backend.observed_since = backend.now
    status = backend.status_of(name)
    assert status.result is result
    assert status.epochs == 8
    assert float(status.usage.gpu_energy_joules) == 9000.0
    assert len(backend.records) == 1


def test_what_was_left_counts_once_the_attempt_names_its_workload_and_not_from_another_kind_of_source() -> None:
    """The operator was killed between the start of the workload and its next status."""
    for source, result in (("Push", Result.REACHED), ("Logs", Result.MISSING_METRIC)):
        backend = backend_with(**NEVER_RETRY, reporting={"source": source})
        backend.reconcile()
        (name,) = backend.workloads
        backend.run_workload(name)
        backend.end_workload(name)
        left = left_behind(sequence=9, epoch=8, metric=0.95, finished=True)
        backend.workloads[name] = replace(backend.workloads[name], undelivered=left)
        recurrence = backend.recurrences[name]
        status = recurrence.status.model_copy(update={"workload_ref": None})
        backend.recurrences[name] = recurrence.model_copy(update={"status": status})
        backend.advance(3600)
        backend.observed_since = backend.now
        backend.reconcile()
        assert backend.status_of(name, 60).result is result


@pytest.mark.parametrize(
    ("kept", "ended", "result"),
    [(("u0", "u1"), {0}, Result.REACHED), (("u0",), {0}, Result.DISRUPTED), (("u0",), {0, 1}, Result.REACHED)],
    ids=["the other rank reports nothing", "its pod is gone", "it had reported its end"],
)
def test_a_part_of_the_energy_of_several_ranks_is_not_taken_for_all_of_it(
    kept: tuple[str, ...], ended: set[int], result: Result
) -> None:
    """A node that is empty is often removed while the operator is away, and its pod with it."""
    backend = backend_with(**NEVER_RETRY)
    name = backend.start_attempt()
    pods = tuple(WorkloadPod(f"a-{uid}", f"node-{uid}", uid=uid) for uid in ("u0", "u1"))
    backend.workloads[name] = replace(backend.workloads[name], pods=pods)
    backend.reconcile()
    backend.end_workload(name)
    last = {"sequence": 9, "epoch": 8, "metric": 0.95, "finished": True}
    reports = [replace(report(**last, rank=rank), process=f"p{rank}", ranks=2) for rank in ended]
    left = UndeliveredReports("a-u0", "u0", packed(reports))
    present = tuple(pod for pod in pods if pod.uid in kept)
    backend.workloads[name] = replace(backend.workloads[name], undelivered=(left,), pods=present)
    backend.advance(3600)
    backend.observed_since = backend.now
    status = backend.status_of(name)
    assert status.result is result
    assert ("is gone" in status.message) is (result is Result.DISRUPTED)
