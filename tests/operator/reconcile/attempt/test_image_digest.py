"""The digest of the image that an attempt ran, in its status, its observation and its power profile."""

from dataclasses import replace

import pytest

from support.backends.model_backend import ModelBackend
from wattloop.wire.training_messages import LimitMeasurement

OLD, NEW = "sha256:" + "0" * 64, "sha256:" + "1" * 64
PROFILE = tuple(LimitMeasurement(watts, 100.0, 10.0, 0.1) for watts in (200.0, 300.0))


@pytest.mark.parametrize("digest", [OLD, None])
def test_an_attempt_records_the_image_that_it_ran(backend: ModelBackend, digest: str | None) -> None:
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name, digest)
    backend.reconcile()
    assert backend.recurrences[name].status.image_digest == digest
    backend.report(name, epoch=10, metric=0.95, profile=PROFILE)
    # Its pods are gone when it has ended.
    backend.workloads[name] = replace(backend.workloads[name], image_digest=None)
    backend.end_workload(name)
    backend.reconcile()
    assert backend.recurrences[name].status.image_digest == digest
    assert [record.image_digest for record in backend.records.values()] == [digest]
    assert [key.image_digest for key in backend.profiles] == [digest or ""]


def test_an_attempt_that_ends_before_it_is_seen_running_records_its_image(backend: ModelBackend) -> None:
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name, OLD)
    backend.end_workload(name)
    backend.reconcile()
    assert [record.image_digest for record in backend.records.values()] == [OLD]


def test_the_image_of_a_replaced_pod_does_not_change_that_of_the_attempt(backend: ModelBackend) -> None:
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name, OLD)
    backend.reconcile()
    backend.run_workload(name, NEW)
    backend.reconcile()
    assert backend.recurrences[name].status.image_digest == OLD


def test_an_object_that_is_not_wattloops_has_no_image(backend: ModelBackend) -> None:
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name, OLD)
    backend.workloads[name] = replace(backend.workloads[name], owned=False)
    backend.reconcile()
    assert backend.recurrences[name].status.image_digest is None
