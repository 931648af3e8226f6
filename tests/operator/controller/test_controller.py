"""The controller's threads as the health check sees them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import kopf
import pytest

from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, Transport
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import ObjectCache, watched_kinds
from wattloop_operator.controller.controller import Controller
from wattloop_operator.controller.work_queue import WorkQueue

KINDS = ["RecurringTrainingJob", "TrainingRecurrence"]


class StopError(Exception):
    """Stops a controller before it starts a thread."""


def no_server(request: Request) -> dict[str, Any]:
    raise AssertionError(f"{request.path} was requested")


def controller_of(transport: Transport, heartbeat: Callable[[str], None] = lambda _: None) -> Controller:
    work_queue = WorkQueue(lambda _: None, workers=1)
    return Controller(
        registry=kopf.OperatorRegistry(),
        settings=kopf.OperatorSettings(),
        work_queue=work_queue,
        dispatcher=EventDispatcher(
            watched_kinds(ObjectCache()),
            enqueue=work_queue.add,
            job_deleted=lambda *_: None,
            heartbeat=heartbeat,
            all_listed=work_queue.start,
        ),
        api=ClusterApi(transport),
        heartbeat=heartbeat,
        changes_missed=lambda *_: None,
        resync_seconds=600,
        write_policy_statuses=lambda: None,
    )


def test_a_controller_that_is_starting_has_no_problem() -> None:
    problems = []

    def heartbeat(_: str) -> None:
        problems.append(controller.problem())
        raise StopError

    controller = controller_of(no_server, heartbeat)
    with pytest.raises(StopError):
        controller.start()
    assert problems == [""], "the health check asks meanwhile, from another thread"


def test_the_watches_wait_until_a_starting_api_server_lists_all_kinds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wattloop_operator.controller.controller.DISCOVERY_SECONDS", 0.001)
    watching = threading.Event()
    monkeypatch.setattr(kopf, "run", lambda **options: (watching.set(), options["stop_flag"].wait()))
    discoveries = iter([[], ["RecurringTrainingJob"], KINDS])
    listed: list[str] = []

    def starting(request: Request) -> dict[str, Any]:
        if request.path == "/apis":
            return {"groups": [{"name": "wattloop.dev"}, {"name": "batch"}]}
        if request.path == "/apis/wattloop.dev/v1alpha1":
            assert not watching.is_set()
            listed[:] = next(discoveries, KINDS)
        return {"resources": [{"kind": kind, "name": kind.lower()} for kind in [*listed, "Job", "Pod"]]}

    controller = controller_of(starting)
    controller.start()
    assert watching.wait(60.0)
    assert controller.problem() == ""
    controller.stop()
    controller.join()
    (first, *_) = caplog.messages
    assert "does not list recurringtrainingjobs of wattloop.dev/v1alpha1, trainingrecurrences of" in first


def test_a_controller_is_stopped_while_its_watches_wait() -> None:
    controller = controller_of(lambda _: {})
    controller.start()
    controller.stop()
    controller.join()
    assert controller.problem() == ""
