"""What the attempts of another job (`learnFrom`) say about this job."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import LearnSince
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.learning.changed_job import source_observations

SOURCE_UID = "source-uid"


@pytest.fixture
def records(backend_with: Callable[..., ModelBackend]) -> tuple[ObservationRecord, ...]:
    """Four attempts of the source with batch size 64, in recurrences 0 to 3."""
    source = backend_with(mode="Fixed", retries=0)
    for _ in range(4):
        source.reconcile()
        (name,) = source.running
        source.run_workload(name)
        source.report(name, epoch=10, metric=0.95, finished=True)
        source.end_workload(name)
        source.reconcile()
        source.advance(3600)
    return tuple(replace(record, job_uid=SOURCE_UID, job_name="source") for record in source.records.values())


def source_job(backend: ModelBackend, learn_since: LearnSince | None = None) -> RecurringTrainingJob:
    metadata = backend.job.metadata.model_copy(update={"uid": SOURCE_UID, "name": "source"})
    status = backend.job.status.model_copy(update={"learn_since": learn_since})
    return backend.job.model_copy(update={"metadata": metadata, "status": status})


def recurrences_used(
    backend: ModelBackend, records: tuple[ObservationRecord, ...], source: RecurringTrainingJob | None
) -> list[int]:
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    used = source_observations(replace(snapshot, source_records=records, source_job=source))
    assert all(each.from_other_job for each in used)
    return sorted(each.recurrence for each in used)


@pytest.mark.parametrize(
    ("changes", "used"),
    [
        ({}, [0, 1, 2, 3]),
        ({"target_evaluations": 3}, [0, 1, 2, 3]),
        ({"target_metric": "loss"}, [1, 2, 3]),
        ({"target_direction": "Minimize"}, [1, 2, 3]),
        ({"target_threshold": 0.8, "curve": None}, [1, 2, 3]),
        # A curve says when the other threshold was reached.
        ({"target_threshold": 0.8}, [0, 1, 2, 3]),
        ({"result": "Crashed"}, [1, 2, 3]),
        ({"result": "Cancelled"}, [1, 2, 3]),
    ],
)
def test_only_attempts_towards_the_same_target_are_used(
    backend: ModelBackend, records: tuple[ObservationRecord, ...], changes: dict[str, Any], used: list[int]
) -> None:
    records = (replace(records[0], **changes), *records[1:])
    for source in (None, source_job(backend)):
        assert recurrences_used(backend, records, source) == used


@pytest.mark.parametrize(("before", "used"), [(0, [0, 1, 2, 3]), (2, [2, 3]), (9, [])])
def test_attempts_that_the_source_forgot_are_not_used(
    backend: ModelBackend, records: tuple[ObservationRecord, ...], before: int, used: list[int]
) -> None:
    source = source_job(backend, LearnSince(text="a", recurrence=before))
    assert recurrences_used(backend, records, source) == used
    # A deleted job of the same name has other recurrences.
    deleted = tuple(replace(record, job_uid="deleted-uid") for record in records)
    assert recurrences_used(backend, deleted, source) == [0, 1, 2, 3]
