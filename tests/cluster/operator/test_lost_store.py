"""The database alone is enough: the next decision is the same. The objects alone restore what they state."""

from datetime import UTC, datetime
from pathlib import Path

from support.backends.model_backend import stated
from support.control_plane.driven_job import DrivenJob
from wattloop_operator.api.training_recurrence import TrainingRecurrenceSpec
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.store import open_store

RUNS = ("first", "second", "third", "fourth")


def run_all(driven: DrivenJob) -> None:
    for index, request in enumerate(RUNS):
        driven.begin(runRequest=request)
        driven.reach_target(driven.train(driven.name_of(index=index, request=request)))


def next_decision(driven: DrivenJob) -> TrainingRecurrenceSpec:
    snapshot = driven.operator.backend.snapshot(driven.key)
    assert snapshot is not None
    attempt = Attempt(next_index(snapshot), 0, "next", datetime(2026, 3, 1, tzinfo=UTC))
    return decide(snapshot, attempt).spec


def test_without_its_database_the_operator_fills_a_new_one_with_what_the_objects_state(
    driven: DrivenJob, tmp_path: Path
) -> None:
    run_all(driven)
    of_job = driven.key.namespace, driven.key.name
    records = driven.operator.store.observations.of_name(*of_job)
    assert len(records) == len(RUNS)
    with open_store(tmp_path / "new.db") as empty:
        driven.operator.restart(empty)
        driven.reconcile()
        assert empty.observations.of_name(*of_job) == tuple(map(stated, records))
        assert next_decision(driven).index == len(RUNS)


def test_without_old_objects_the_operator_decides_the_same(driven: DrivenJob) -> None:
    run_all(driven)
    before = next_decision(driven)
    driven.begin(runRequest=RUNS[-1], successfulRunsHistoryLimit=0)
    assert driven.recurrences == []
    assert next_decision(driven) == before
    driven.operator.restart()
    driven.reconcile()
    assert next_decision(driven) == before


def test_a_run_request_starts_one_run_even_if_its_recurrence_is_deleted(driven: DrivenJob) -> None:
    driven.reach_target(driven.start(successfulRunsHistoryLimit=0))
    driven.operator.restart()
    driven.reconcile()
    assert driven.recurrences == []
