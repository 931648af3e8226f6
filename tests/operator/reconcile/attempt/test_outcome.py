"""How attempts end, what the condition says, and what the policy learns of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend
from wattloop_operator.api.attempt import Result
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.learning import observations
from wattloop_planner.observations import Observation, Outcome

Reconcile = Callable[[ModelBackend], None]
NEVER_RETRY: dict[str, Any] = {"retryPolicy": {"limit": 0}, "activeDeadlineSeconds": 600}


def started(backend: ModelBackend, settled: Reconcile) -> str:
    """Starts the first attempt and returns its name."""
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    settled(backend)
    return name


def learned(backend: ModelBackend) -> tuple[Observation, ...]:
    return observations.observations(tuple(backend.records.values()))


def dies(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=1, metric=0.4)
    backend.end_workload(name, Failure.CRASHED, "exit code 1")


def dies_before_a_report(backend: ModelBackend, name: str) -> None:
    backend.end_workload(name, Failure.CRASHED, "out of memory")


def is_evicted(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=3, metric=0.4)
    backend.end_workload(name, Failure.DISRUPTED, "evicted")


def hangs_past_its_deadline(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=7, metric=0.4)
    backend.pass_seconds(601)


def hangs_without_a_word(backend: ModelBackend, name: str) -> None:
    backend.pass_seconds(601)


def reports_nothing(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=50, finished=True)
    backend.end_workload(name)


def never_reaches_the_target(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=50, metric=0.89, finished=True)
    backend.end_workload(name)


def reaches_the_target(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=5, metric=0.9, finished=True)
    backend.end_workload(name)


def reaches_the_target_and_dies(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=5, metric=0.93)
    backend.end_workload(name, Failure.CRASHED, "exit code 1")


def is_done_but_does_not_end(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=5, metric=0.93, finished=True)


def is_deleted_by_hand(backend: ModelBackend, name: str) -> None:
    backend.report(name, sequence=1, epoch=2, metric=0.4)
    del backend.workloads[name]


@pytest.mark.parametrize(
    ("happens", "result", "message", "outcome", "epochs"),
    [
        (dies, Result.CRASHED, "batch size 64: exit code 1", Outcome.CRASHED, 1),
        (dies_before_a_report, Result.CRASHED, "out of memory", Outcome.CRASHED, 0),
        (is_evicted, Result.DISRUPTED, "nothing is learned", None, None),
        (hangs_past_its_deadline, Result.DEADLINE_EXCEEDED, "its last report was for epoch 7", Outcome.STOPPED, 7),
        (hangs_without_a_word, Result.DEADLINE_EXCEEDED, "it never reported a metric", None, None),
        (reports_nothing, Result.MISSING_METRIC, "call run.report", None, None),
        (never_reaches_the_target, Result.EXHAUSTED, "got to 0.89, the target is 0.9", Outcome.EXHAUSTED, 50),
        (reaches_the_target, Result.REACHED, "accuracy reached 0.9 after 5 epochs", Outcome.REACHED, 5),
        (reaches_the_target_and_dies, Result.REACHED, "accuracy reached 0.93", Outcome.REACHED, 5),
        (is_deleted_by_hand, Result.CANCELLED, "its workload was deleted", None, None),
    ],
)
def test_each_end_has_its_result_its_reason_and_its_lesson(
    backend_with: Callable[..., ModelBackend],
    settled: Reconcile,
    happens: Callable[[ModelBackend, str], None],
    result: Result,
    message: str,
    outcome: Outcome | None,
    epochs: float | None,
) -> None:
    backend = backend_with(**NEVER_RETRY)
    name = started(backend, settled)
    happens(backend, name)
    settled(backend)
    status = backend.recurrences[name].status
    assert status.result is result
    assert message in status.message
    complete = next(each for each in status.conditions if each.type == "Complete")
    assert (complete.status, complete.reason) == ("True", result.value)
    assert [(each.outcome, each.epochs) for each in learned(backend)] == (
        [] if outcome is None else [(outcome, epochs)]
    )
    last_run = next(each for each in backend.job.status.conditions if each.type == "LastRunSucceeded")
    assert (last_run.status, last_run.reason) == ("True" if result is Result.REACHED else "False", result.value)


def test_a_process_that_is_done_but_does_not_end_is_ended_after_its_grace(
    backend: ModelBackend, settled: Reconcile
) -> None:
    name = started(backend, settled)
    is_done_but_does_not_end(backend, name)
    settled(backend)
    backend.pass_seconds(59)
    settled(backend)
    assert backend.recurrences[name].status.result is None
    backend.pass_seconds(2)
    settled(backend)
    assert backend.recurrences[name].status.result is Result.REACHED
    assert name not in backend.workloads


def test_a_run_that_becomes_too_dear_is_told_to_stop_and_teaches_a_bound(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(**NEVER_RETRY, policy={"zeus": {}})
    first = started(backend, settled)
    reaches_the_target(backend, first)
    settled(backend)
    backend.pass_seconds(3600)
    second = started(backend, settled)
    bound = backend.recurrences[second].spec.stop_cost_joules
    assert bound is not None
    backend.report(second, sequence=1, epoch=9, metric=0.5, joules=2 * float(bound), seconds=1.0)
    progress = backend.recurrences[second].status.progress
    assert progress is not None
    assert progress.stop_requested
    backend.end_workload(second)
    settled(backend)
    assert backend.recurrences[second].status.result is Result.STOPPED
    assert learned(backend)[-1].outcome is Outcome.STOPPED


def test_a_target_reached_just_above_the_bound_counts_as_reached(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(**NEVER_RETRY, policy={"zeus": {}})
    first = started(backend, settled)
    reaches_the_target(backend, first)
    settled(backend)
    backend.pass_seconds(3600)
    second = started(backend, settled)
    bound = backend.recurrences[second].spec.stop_cost_joules
    assert bound is not None
    backend.report(second, sequence=1, epoch=9, metric=0.95, joules=3 * float(bound), seconds=1.0, finished=True)
    backend.end_workload(second)
    settled(backend)
    assert backend.recurrences[second].status.result is Result.REACHED


def test_an_arm_that_crashes_again_and_again_is_tried_no_more(
    backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(crashBudget=2, retryPolicy={"limit": 20}, batchSize={"default": 64, "candidates": [32, 64]})
    settled(backend)
    crashes: list[int] = []
    while backend.running:
        name = backend.running[0]
        crashes.append(backend.recurrences[name].spec.batch_size)
        backend.run_workload(name)
        dies_before_a_report(backend, name)
        settled(backend)
    assert sorted(crashes) == [32, 32, 64, 64]
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "NoArmLeft")
    assert "every batch size crashed" in ready.message
    assert [each.reason for each in backend.announced] == ["NoArmLeft"]


def test_a_retry_belongs_to_the_same_recurrence_and_its_cost_adds_up(backend: ModelBackend, settled: Reconcile) -> None:
    first = started(backend, settled)
    never_reaches_the_target(backend, first)
    settled(backend)
    second = backend.running[0]
    spec = backend.recurrences[second].spec
    assert (spec.index, spec.attempt, spec.slot) == (0, 1, backend.recurrences[first].spec.slot)
    backend.run_workload(second)
    reaches_the_target(backend, second)
    settled(backend)
    recent = backend.job.status.recent_recurrences[0]
    assert (recent.index, recent.attempts, recent.result) == (0, 2, Result.REACHED)
    # Two attempts of 1000 J and 10 s on a GPU of 400 W at most, energy and time weighing the same.
    assert recent.cost_joules == 2 * (0.5 * 1000 + 0.5 * 400 * 10)
    assert backend.job.status.counts.recurrences == 1


def test_a_missing_metric_is_not_tried_again(backend: ModelBackend, settled: Reconcile) -> None:
    name = started(backend, settled)
    reports_nothing(backend, name)
    settled(backend)
    assert backend.running == []
