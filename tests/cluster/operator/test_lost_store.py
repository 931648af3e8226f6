"""The database or the objects alone are enough: the next decision is the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.kubelet import Kubelet
from support.control_plane.training import Training
from support.control_plane.waiting import Object
from wattloop_operator.api.training_recurrence import TrainingRecurrenceSpec
from wattloop_operator.domain.names import JobKey, recurrence_name, slot_of_request
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.store import open_store

MakeJob = Callable[..., JobKey]
Train = Callable[[JobKey, str], Training]
Ended = Callable[[JobKey, str], None]
RecurrencesOf = Callable[[JobKey], list[Object]]
RUNS = ("first", "second", "third", "fourth")


def run_all(
    operator: InProcessOperator,
    key: JobKey,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    **spec: int,
) -> None:
    for index, request in enumerate(RUNS):
        make_job(runRequest=request, **spec)
        operator.reconcile(key)
        name = recurrence_name(key.name, index, slot_of_request(request), 0)
        training = train(key, name)
        training.reach_target()
        kubelet.succeed(training.pod)
        ended(key, name)
        operator.reconcile(key)


def next_decision(operator: InProcessOperator, key: JobKey) -> TrainingRecurrenceSpec:
    snapshot = operator.backend.snapshot(key)
    assert snapshot is not None
    attempt = Attempt(next_index(snapshot), 0, "next", datetime(2026, 3, 1, tzinfo=UTC))
    return decide(snapshot, attempt).spec


def test_without_its_database_the_operator_decides_the_same_and_fills_a_new_one(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    tmp_path: Path,
) -> None:
    key = make_job()
    run_all(operator, key, make_job, train, ended, kubelet)
    before, records = next_decision(operator, key), operator.store.observations.of_name(key.namespace, key.name)
    assert before.index == len(records) == len(RUNS)
    with open_store(tmp_path / "new.db") as empty:
        operator.restart(empty)
        operator.reconcile(key)
        assert next_decision(operator, key) == before
        assert empty.observations.of_name(key.namespace, key.name) == records


def test_without_old_objects_the_operator_decides_the_same(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    run_all(operator, key, make_job, train, ended, kubelet)
    before = next_decision(operator, key)
    make_job(runRequest=RUNS[-1], successfulHistoryLimit=0)
    operator.reconcile(key)
    assert recurrences_of(key) == []
    assert next_decision(operator, key) == before
    operator.restart()
    operator.reconcile(key)
    assert next_decision(operator, key) == before


def test_a_run_request_starts_one_run_even_if_its_recurrence_is_deleted(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job(successfulHistoryLimit=0)
    operator.reconcile(key)
    name = recurrence_name(key.name, 0, slot_of_request("first"), 0)
    training = train(key, name)
    training.reach_target()
    kubelet.succeed(training.pod)
    ended(key, name)
    operator.reconcile(key)
    operator.restart()
    operator.reconcile(key)
    assert recurrences_of(key) == []
