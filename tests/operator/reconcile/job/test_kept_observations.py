"""Attempts that the store no longer keeps are not recorded again, and their objects follow the history limits."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.backends.model_backend import KEY, ModelBackend
from wattloop_operator.reconcile import actions
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.next_actions import next_actions


def test_objects_older_than_the_store_keeps_are_deleted_and_not_recorded_again(
    backend_with: Callable[..., ModelBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_with(successfulRunsHistoryLimit=1000)
    for _ in range(4):
        backend.reconcile()
        (name,) = backend.running
        backend.run_workload(name)
        backend.report(name, epoch=10, metric=0.95, joules=1000.0, seconds=10.0, finished=True)
        backend.end_workload(name)
        backend.reconcile()
        backend.advance(3600)
    backend.change_spec(suspend=True, successfulRunsHistoryLimit=2)
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    monkeypatch.setattr(job_observations, "MAX_OBSERVATIONS_OF_JOB", 2)
    kept = replace(snapshot, records=snapshot.records[-2:])
    found = next_actions(kept, backend.clock()).actions
    assert not [each for each in found if isinstance(each, actions.RecordObservation | actions.RecordLateUsage)]
    deleted = [each.recurrence.spec.index for each in found if isinstance(each, actions.DeleteRecurrence)]
    assert deleted == [0, 1]
