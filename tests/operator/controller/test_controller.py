"""The controller's threads as the health check sees them."""

from __future__ import annotations

from typing import Any

import kopf
import pytest

from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import ObjectCache, watched_kinds
from wattloop_operator.cluster.transport import Request
from wattloop_operator.controller.controller import Controller
from wattloop_operator.controller.work_queue import WorkQueue


class StopError(Exception):
    """Stops a controller before it starts a thread."""


def no_server(request: Request) -> dict[str, Any]:
    raise AssertionError(f"{request.path} was requested")


def test_a_controller_that_is_starting_has_no_problem() -> None:
    problems = []

    def heartbeat(_: str) -> None:
        problems.append(controller.problem())
        raise StopError

    work_queue = WorkQueue(lambda _: None, workers=1)
    controller = Controller(
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
        api=ClusterApi(no_server),
        heartbeat=heartbeat,
        changes_missed=lambda *_: None,
        resync_seconds=600,
        write_policy_statuses=lambda: None,
    )
    with pytest.raises(StopError):
        controller.start()
    assert problems == [""], "the health check asks meanwhile, from another thread"
