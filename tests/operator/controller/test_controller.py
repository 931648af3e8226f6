"""The controller's threads as the health check sees them."""

import asyncio
import threading
from typing import Any

import kopf
import pytest

from wattloop_operator.cluster.api import JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import Request, Transport, UnavailableError, Watch
from wattloop_operator.cluster.informer.informer import Informer
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, watched_kinds
from wattloop_operator.controller import kopf_operator
from wattloop_operator.controller.controller import Controller
from wattloop_operator.controller.kopf_operator import KopfOperator
from wattloop_operator.controller.work_queue import WorkQueue
from wattloop_operator.telemetry.health import WatchHeartbeat
from wattloop_operator.telemetry.operator_metrics import Metrics

KINDS = ["RecurringTrainingJob", "TrainingRecurrence", "FrequencyPlan", "GPUPowerPolicy"]


class StopError(Exception):
    """Stops a controller before it starts a thread."""


def no_server(request: Request) -> dict[str, Any]:
    raise AssertionError(f"{request.path} was requested")


def no_watch(request: Request) -> Watch:
    raise UnavailableError(f"{request.path}: no watch")


def controller_of(transport: Transport, heartbeat: WatchHeartbeat | None = None) -> Controller:
    heartbeat = heartbeat or WatchHeartbeat(KINDS)
    work_queue = WorkQueue(lambda _: None, workers=1)
    api = ClusterApi(transport)
    dispatcher = EventDispatcher(
        watched_kinds(ObjectCache()),
        enqueue=lambda _, key: work_queue.add(key),
        job_deleted=lambda *_: None,
        heartbeat=heartbeat.beat,
        all_listed=work_queue.start,
    )
    of_people = [Informer(api, no_watch, kind, dispatcher) for kind in dispatcher.kinds if kind.by_people]
    return Controller(
        kopf_operator=KopfOperator(of_people, dispatcher, api, login=dict),
        informers=[Informer(api, no_watch, dispatcher.kind(JOBS), dispatcher)],
        work_queue=work_queue,
        dispatcher=dispatcher,
        api=api,
        heartbeat=heartbeat,
        metrics=Metrics(),
        resync_seconds=600,
    )


def test_a_controller_that_is_starting_has_no_problem() -> None:
    problems = []

    class StoppingHeartbeat(WatchHeartbeat):
        def beat(self, kind: str) -> None:
            problems.append(controller.problem() + controller.connection_problem())
            raise StopError

    controller = controller_of(no_server, StoppingHeartbeat(KINDS))
    with pytest.raises(StopError):
        controller.start()
    assert problems == [""], "the health check asks meanwhile, from another thread"


def test_the_watches_wait_until_a_starting_api_server_lists_all_kinds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kopf_operator, "RETRY_SECONDS", 0.001)
    watching = threading.Event()

    async def operate(*, stop_flag: threading.Event, **_: Any) -> None:
        watching.set()
        await asyncio.to_thread(stop_flag.wait)

    monkeypatch.setattr(kopf, "operator", operate)
    discoveries = iter([[], ["RecurringTrainingJob"], KINDS])
    listed: list[str] = []

    def starting(request: Request) -> dict[str, Any]:
        if request.path == "/apis":
            return {"groups": [{"name": "wattloop.dev"}, {"name": "batch"}]}
        if request.path == "/apis/wattloop.dev/v1alpha1" and listed != KINDS:
            assert not watching.is_set()
            listed[:] = next(discoveries, KINDS)
        resources = [{"kind": kind, "name": kind.lower()} for kind in listed]
        return {"resources": resources, "items": [], "metadata": {"resourceVersion": "1"}}

    controller = controller_of(starting)
    controller.start()
    assert watching.wait(60.0)
    assert controller.problem() == ""
    controller.stop()
    controller.join()
    (first, *_) = [each for each in caplog.messages if each.startswith("the watches wait")]
    assert "does not list recurringtrainingjobs of wattloop.dev/v1alpha1, frequencyplans of" in first


def test_a_controller_is_stopped_while_its_watches_wait() -> None:
    controller = controller_of(lambda _: {})
    controller.start()
    controller.stop()
    controller.join()
    assert controller.problem() == ""
