"""Pods that cannot start spend no attempt: the attempt waits, and a new template replaces it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend
from wattloop_operator.api.attempt_state import Result

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


def test_the_job_names_what_its_attempt_waits_for_until_it_runs(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(**NEVER_RETRY)
    name = hinder(backend)
    backend.advance(DAY_SECONDS)
    backend.reconcile()
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


def test_a_new_template_replaces_the_attempt_and_counts_it_as_none(backend_with: Callable[..., ModelBackend]) -> None:
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
    backend.report(last, epoch=5, metric=0.95, finished=True)
    backend.end_workload(last)
    backend.reconcile()
    assert backend.recurrences[last].status.result is Result.REACHED
    assert first not in backend.workloads


def runs(backend: ModelBackend, name: str) -> None:
    backend.run_workload(name)


def waits_as_usual(backend: ModelBackend, name: str) -> None:
    backend.workloads[name] = replace(backend.workloads[name], wait_reason="")


@pytest.mark.parametrize("happens", [runs, waits_as_usual])
def test_a_new_template_replaces_no_attempt_that_runs_or_is_about_to(
    backend_with: Callable[..., ModelBackend], happens: Callable[[ModelBackend, str], None]
) -> None:
    backend = backend_with(**NEVER_RETRY)
    name = hinder(backend)
    happens(backend, name)
    backend.change_spec(template=template("digits:2"))
    backend.reconcile()
    assert backend.running == [name]
