"""Pods that cannot start spend no attempt: the attempt waits, and a new template replaces it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, backend_with, job
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.attempt.attempt_conditions import DEVICES_HEALTHY
from wattloop_operator.reconcile.learning import job_observations

MESSAGE = "pod digits-x: container train: ImagePullBackOff: image digits:1"
DAY_SECONDS = 86_400
NEVER_RETRY: dict[str, Any] = {"retries": 0, "activeDeadlineSeconds": 600}


def template(image: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": image}]}}}}


def hinder(backend: ModelBackend, reason: str = "ImagePullBackOff") -> str:
    """Start the oldest attempt without a result, whose pods something hinders; returns its name."""
    backend.reconcile()
    name = backend.running[0]
    backend.workloads[name] = replace(backend.workloads[name], wait_reason=reason, message=MESSAGE)
    backend.reconcile()
    return name


def test_the_job_names_what_its_attempt_waits_for_until_it_runs() -> None:
    backend = backend_with(**NEVER_RETRY)
    name = hinder(backend)
    backend.reconcile_after(DAY_SECONDS)
    assert backend.running == [name]
    started = next(each for each in backend.job.status.conditions if each.type == "PodsStarted")
    assert (started.status, started.reason) == ("False", "ImagePullBackOff")
    assert started.message == f"recurrence 0 ({name}) waits and spends no attempt: {MESSAGE}"
    (event,) = backend.events
    assert (event.warning, event.reason, event.message) == (True, started.reason, f"team/digits: {started.message}")
    backend.workloads[name] = replace(backend.workloads[name], wait_reason="", message="")
    backend.run_workload(name)
    backend.reconcile()
    assert "PodsStarted" not in {each.type for each in backend.job.status.conditions}


def test_a_new_template_replaces_the_attempt_and_counts_it_as_none() -> None:
    backend = backend_with(**NEVER_RETRY)
    first = hinder(backend)
    for image in ("digits:2", "digits:3"):
        backend.change_spec(template=template(image))
        hinder(backend)
    ended = backend.recurrences[first].status
    assert ended.result is Result.DISRUPTED
    assert f"it never started ({MESSAGE}), and spec.template has changed" in ended.message
    last = backend.start_attempt()
    spec = backend.recurrences[last].spec
    assert (spec.index, spec.attempt) == (0, 2)
    backend.workloads[last] = replace(backend.workloads[last], wait_reason="")
    assert backend.finish(last, epoch=5, metric=0.95).result is Result.REACHED
    assert first not in backend.workloads


def runs(backend: ModelBackend, name: str) -> None:
    backend.run_workload(name)


def waits_as_usual(backend: ModelBackend, name: str) -> None:
    backend.workloads[name] = replace(backend.workloads[name], wait_reason="")


@pytest.mark.parametrize("happens", [runs, waits_as_usual])
def test_a_new_template_replaces_no_attempt_that_runs_or_is_about_to(
    happens: Callable[[ModelBackend, str], None],
) -> None:
    backend = backend_with(**NEVER_RETRY)
    name = hinder(backend)
    happens(backend, name)
    backend.edit(template=template("digits:2"))
    assert backend.running == [name]


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
    backend.end_attempt(name)
    assert backend.recurrences[name].status.image_digest == digest
    assert [record.image_digest for record in backend.records.values()] == [digest]
    assert [key.image_digest for key in backend.profiles] == [digest or ""]


def test_an_attempt_that_ends_before_it_is_seen_running_records_its_image(backend: ModelBackend) -> None:
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name, OLD)
    backend.end_attempt(name)
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


UNHEALTHY = "pod a-x: unhealthy: nvidia.com/gpu GPU-a"


def crashed(*, unhealthy: str) -> tuple[ModelBackend, str]:
    """An attempt that crashes after its devices were reported as unhealthy, and no longer are."""
    backend = ModelBackend(job(mode="Fixed"))
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.workloads[name] = replace(backend.workloads[name], unhealthy=unhealthy)
    backend.reconcile()
    backend.workloads[name] = replace(backend.workloads[name], unhealthy="")
    backend.reconcile()
    backend.end_attempt(name, Failure.CRASHED, "container train ended with exit code 1")
    return backend, name


@pytest.mark.parametrize(("unhealthy", "result"), [(UNHEALTHY, Result.DISRUPTED), ("", Result.CRASHED)])
def test_a_crash_with_an_unhealthy_device_is_a_disruption(unhealthy: str, result: Result) -> None:
    backend, name = crashed(unhealthy=unhealthy)
    assert backend.recurrences[name].status.result is result
    assert "exit code 1" in backend.recurrences[name].status.message
    assert bool(job_observations.observations(tuple(backend.records.values()))) is (result is Result.CRASHED)


def test_a_condition_names_the_unhealthy_device_until_the_end() -> None:
    backend, name = crashed(unhealthy=UNHEALTHY)
    condition = next(each for each in backend.recurrences[name].status.conditions if each.type == DEVICES_HEALTHY)
    assert (condition.status, condition.reason, condition.message) == (ConditionStatus.FALSE, "Unhealthy", UNHEALTHY)
    assert UNHEALTHY in backend.recurrences[name].status.message
