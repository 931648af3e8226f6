"""Each thread of a leading operator, ended at an arbitrary instruction, makes its liveness fail."""

import argparse
import contextlib
import gc
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes.client import ApiClient

from support.ended_threads import end_thread, watched_names
from support.load_aware_clock import LoadAwareClock
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.cluster.api_transport import Request
from wattloop_operator.factory import Factory
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.operator_settings import SETTINGS, settings_from
from wattloop_operator.store import open_store
from wattloop_operator.workloads.injection import ClusterAddresses

# docs/internals/threads.md says what an exception in each of them does. First a server, the server that is asked
# itself, the thread of kopf's event loop, and a thread that waits for work.
THREADS = [
    "http-reporting API",
    "http-health",
    "watches",
    "reconcile-0",
    "progress-writer",
    "pipeline-commits",
    "pipeline-planner",
    "gpu-nodes",
    "database-check",
    "http-metrics",
    "resync",
    "informer /apis/wattloop.dev/v1alpha1/trainingrecurrences",
    "informer /apis/batch/v1/jobs",
    "informer /api/v1/pods",
    "policy-statuses",
    "endings",
    "old-progress",
    "training-output",
    "frequency-plans",
    "timer",
]
# Between two questions; nobody sets it.
PAUSE = threading.Event()
# A client of its own for each request would cost 20 ms of processor time.
CLIENT = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))
MAX_SECONDS = 10.0


def no_kinds(_: Request) -> dict[str, Any]:
    """An API server that is starting."""
    return {"groups": [], "resources": [], "items": [], "metadata": {"resourceVersion": "1"}}


@contextlib.contextmanager
def running_operator(folder: Path) -> Iterator[tuple[HttpService, list[HttpService]]]:
    """The parts of an operator that leads; gives its health service and its other servers."""
    given = dict.fromkeys((setting.key for setting in SETTINGS), None)
    given |= dict.fromkeys(("report_bind", "health_bind", "metrics_bind"), "127.0.0.1:0")
    given |= {"config": None, "resync_seconds": "10", "workers": "1"}
    settings = settings_from(argparse.Namespace(**given), {})
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(folder / "wattloop.db"))
        factory = Factory(settings, store, ApiClient(), no_kinds)
        reports = factory.report_service()
        health, metrics = factory.health_service(reports), factory.metrics_service(lambda: True)
        assert health is not None
        assert metrics is not None
        stack.enter_context(factory.database)
        for service in (reports, health, metrics):
            service.start()
            stack.callback(service.stop)
        controller = factory.controller(lambda: ClusterAddresses(reports.url), lambda: True)
        controller.start()
        stack.callback(controller.join)
        stack.callback(controller.stop)
        controller._work_queue.start()
        yield health, [reports, metrics]


def problem(health: HttpService, timeout_seconds: float = 60.0) -> str:
    """What /healthz says; empty if it is well."""
    try:
        answer = CLIENT.get(f"{health.url}/healthz", timeout=timeout_seconds)
    except httpx.TransportError:
        return "no answer"
    return "" if answer.status_code == 200 else str(answer.json()["threads"])


def test_every_thread_of_the_operator_is_watched(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with running_operator(tmp_path) as (health, _):
        assert problem(health) == ""
        started = {each.name for each in set(threading.enumerate()) - before}
        library = {name for name in started if name.startswith(("AnyIO worker", "asyncio_", "ThreadPool"))}
        assert started - library == set(THREADS)
        assert set(THREADS) <= set(watched_names())


# A server that ended in the middle closes no connection; they are collected before the test ends.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("name", exhaustive_after(THREADS, usual=4))
def test_liveness_fails_within_ten_seconds_of_the_end_of_a_thread(tmp_path: Path, name: str) -> None:
    with running_operator(tmp_path) as (health, others):
        assert problem(health) == ""
        end_thread(name)
        # A server without clients waits in the kernel, and the exception for its next instruction.
        for server in others:
            socket.create_connection((server.address.host, server.address.port)).close()
        # Only the health service itself gives no answer; that of a busy machine may come late.
        answer_seconds = 2.0 if name == "http-health" else 60.0
        with LoadAwareClock() as clock:
            while not (found := problem(health, answer_seconds)):
                assert clock.seconds() < MAX_SECONDS
                PAUSE.wait(0.05)
            # The answer itself may have come late.
            assert clock.seconds() < MAX_SECONDS
        assert found == ("no answer" if name == "http-health" else f"the thread {name} has ended: SystemExit")
    gc.collect()
