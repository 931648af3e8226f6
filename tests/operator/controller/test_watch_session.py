"""kopf's watches outlive the errors with which an API server answers a list or a watch."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import kopf
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from yarl import URL

from wattloop.commands.settings import Address
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import ObjectCache, WatchedKind, watched_kinds
from wattloop_operator.cluster.informer.stored_parts import Body, own_part
from wattloop_operator.controller.kopf_handlers import LIST_OBJECTS, registry_of, settings_of
from wattloop_operator.controller.watch_session import MAX_CLOSED_SECONDS, HandledLines, OpenWatches
from wattloop_operator.domain.names import JobKey
from wattloop_operator.http.http_service import HttpService

GROUP, VERSION = "wattloop.dev", "v1alpha1"
RESOURCE = {
    "name": "recurringtrainingjobs",
    "singularName": "recurringtrainingjob",
    "kind": "RecurringTrainingJob",
    "namespaced": True,
    "verbs": ["list", "watch", "patch"],
}
# kopf watches nothing before it has found this resource.
NAMESPACES = {"name": "namespaces", "singularName": "namespace", "kind": "Namespace", "namespaced": False, "verbs": []}
STREAM_SECONDS = 0.2
# Number of a job whose reading fails by a defect of the operator.
UNFORESEEN = -1
JOB: dict[str, Any] = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": "RecurringTrainingJob",
    "spec": {
        "trigger": {"manual": {}},
        "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
        "batchSize": {"default": 64, "candidates": [64]},
        "template": {"job": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
    },
}


class FailingServer:
    """The requests that kopf sends; the second page of the first list, or the first watch, fails.

    Args:
        page_status: Status of the second page; 0: the list has one page.
        error_code: Code of the first event of the first watch; 0: it has no event.
    """

    def __init__(self, page_status: int = 0, error_code: int = 0) -> None:
        self.page_status = page_status
        self.error_code = error_code
        self.watched_again = threading.Event()
        path = f"/apis/{GROUP}/{VERSION}"
        group = {"name": GROUP, "versions": [{"version": VERSION}], "preferredVersion": {"version": VERSION}}
        self.app = Starlette(
            routes=[
                Route("/api", lambda _: JSONResponse({"versions": ["v1"]})),
                Route("/api/v1", lambda _: JSONResponse({"resources": [NAMESPACES]})),
                Route("/apis", lambda _: JSONResponse({"groups": [group]})),
                Route(path, lambda _: JSONResponse({"resources": [RESOURCE]})),
                Route(f"{path}/recurringtrainingjobs", self.objects),
            ]
        )

    async def objects(self, request: Request) -> Response:
        """The answer to a list or a watch."""
        if request.query_params.get("watch"):
            code, self.error_code = self.error_code, 0
            if not code and not self.page_status:
                self.watched_again.set()
            return StreamingResponse(self.events(code))
        if request.query_params.get("continue"):
            status, self.page_status = self.page_status, 0
            return JSONResponse({"kind": "Status", "code": status, "message": "expired"}, status)
        more = {"continue": "next"} if self.page_status else {}
        return JSONResponse({"items": [], "metadata": {"resourceVersion": "5", **more}})

    async def events(self, code: int) -> AsyncIterator[str]:
        """The lines of a watch, of which the first may be an error."""
        if code:
            yield json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "failed"}}) + "\n"
        await asyncio.sleep(STREAM_SECONDS)


def storing_dispatcher(kinds: tuple[WatchedKind, ...]) -> EventDispatcher:
    """A dispatcher that stores objects, and tells nobody."""
    return EventDispatcher(
        kinds,
        enqueue=lambda _: None,
        job_deleted=lambda _key, _uid: None,
        heartbeat=lambda _: None,
        all_listed=lambda: None,
    )


@pytest.mark.parametrize("failure", [{"page_status": 410}, {"error_code": 410}, {"error_code": 500}], ids=str)
def test_an_error_of_a_list_or_a_watch_has_its_objects_listed_again(failure: dict[str, int]) -> None:
    server = FailingServer(**failure)
    service = HttpService("API server", server.app, Address("127.0.0.1", 0))
    service.start()
    kinds = tuple(kind for kind in watched_kinds(ObjectCache()) if kind.resource.kind == "RecurringTrainingJob")
    dispatcher = storing_dispatcher(kinds)
    stopping = threading.Event()
    registry = registry_of(dispatcher, lambda: {"server": service.url}, OpenWatches())
    thread = threading.Thread(
        target=lambda: kopf.run(
            registry=registry, settings=settings_of(kinds), clusterwide=True, standalone=True, stop_flag=stopping
        )
    )
    thread.start()
    try:
        assert server.watched_again.wait(60.0)
    finally:
        stopping.set()
        thread.join(60.0)
        service.stop()
    assert not thread.is_alive()


class ListingServer:
    """Pages of jobs, and a watch with a change of one and the deletion of another, among jobs that cannot be read."""

    def __init__(self, count: int) -> None:
        self._jobs = [job(UNFORESEEN), *(job(index) for index in range(count))]
        path = f"/apis/{GROUP}/{VERSION}"
        group = {"name": GROUP, "versions": [{"version": VERSION}], "preferredVersion": {"version": VERSION}}
        self.app = Starlette(
            routes=[
                Route("/api", lambda _: JSONResponse({"versions": ["v1"]})),
                Route("/api/v1", lambda _: JSONResponse({"resources": [NAMESPACES]})),
                Route("/apis", lambda _: JSONResponse({"groups": [group]})),
                Route(path, lambda _: JSONResponse({"resources": [RESOURCE]})),
                Route(f"{path}/recurringtrainingjobs", self.objects),
            ]
        )

    async def objects(self, request: Request) -> Response:
        """A page of the list, or the watch."""
        if request.query_params.get("watch"):
            return StreamingResponse(self.events())
        start, size = int(request.query_params.get("continue", 0)), int(request.query_params["limit"])
        more = {"continue": str(start + size)} if start + size < len(self._jobs) else {}
        page = self._jobs[start : start + size]
        return JSONResponse({"kind": "List", "items": page, "metadata": {"resourceVersion": "5", **more}})

    async def events(self) -> AsyncIterator[str]:
        """The lines of the watch."""
        yield json.dumps({"type": "MODIFIED", "object": job(UNFORESEEN, "6")}) + "\n"
        yield json.dumps({"type": "MODIFIED", "object": job(0, "7")}) + "\n"
        yield json.dumps({"type": "DELETED", "object": job(1, "8")}) + "\n"
        await asyncio.sleep(STREAM_SECONDS)


def job(index: int, version: str = "4") -> dict[str, Any]:
    """A job of this number, in the form of the API server."""
    metadata = {"name": f"job-{index}", "namespace": "team", "uid": f"uid-{index}", "resourceVersion": version}
    return {**JOB, "metadata": metadata}


def part_of(body: Body) -> Body:
    """The stored part of a job, unless an error ends its reading that nobody has foreseen."""
    if body["metadata"]["name"] == f"job-{UNFORESEEN}":
        raise AttributeError("unforeseen")
    return own_part(body)


def test_all_objects_of_a_list_but_one_that_fails_are_cached_before_work_starts_and_changes_follow() -> None:
    # More than two pages, the last of which is not full.
    count = 2 * LIST_OBJECTS + 3
    server = ListingServer(count)
    service = HttpService("API server", server.app, Address("127.0.0.1", 0))
    service.start()
    kinds = tuple(
        replace(kind, part=part_of)
        for kind in watched_kinds(ObjectCache())
        if kind.resource.kind == "RecurringTrainingJob"
    )
    cached: list[int] = []
    deleted = threading.Event()
    dispatcher = EventDispatcher(
        kinds,
        enqueue=lambda _: None,
        job_deleted=lambda _key, _uid: deleted.set(),
        heartbeat=lambda _: None,
        all_listed=lambda: cached.append(len(dispatcher.jobs())),
    )
    stopping = threading.Event()
    registry = registry_of(dispatcher, lambda: {"server": service.url}, OpenWatches())
    thread = threading.Thread(
        target=lambda: kopf.run(
            registry=registry, settings=settings_of(kinds), clusterwide=True, standalone=True, stop_flag=stopping
        )
    )
    thread.start()
    try:
        assert deleted.wait(60.0)
    finally:
        stopping.set()
        thread.join(60.0)
        service.stop()
    assert not thread.is_alive()
    assert cached == [count]
    assert JobKey("team", "job-1") not in dispatcher.jobs()
    assert len(dispatcher.jobs()) == count - 1
    (changed,) = (each for each in kinds[0].object_store.all() if each.key == ("team", "job-0"))
    assert changed.value.metadata.resource_version == "7"


class ChunkedStream:
    """The stream of a response in chunks as they arrive."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        """The chunks."""
        for chunk in self._chunks:
            yield chunk


def lines_for_kopf(*chunks: bytes) -> tuple[list[dict[str, Any]], EventDispatcher]:
    """The lines that kopf gets of the chunks of a watch, and what received the objects."""
    kinds = tuple(kind for kind in watched_kinds(ObjectCache()) if kind.resource.kind == "RecurringTrainingJob")
    dispatcher = storing_dispatcher(kinds)
    handled = HandledLines(ChunkedStream(*chunks), WATCH, kinds[0], dispatcher)  # type: ignore[arg-type]

    async def read() -> list[bytes]:
        return [line async for line in handled.iter_chunked(1024)]

    return [json.loads(line) for line in asyncio.run(read())], dispatcher


def event_line(event_type: str, body: Any) -> bytes:
    return json.dumps({"type": event_type, "object": body}).encode() + b"\n"


def bookmark(version: str) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}


EXPIRED = {"type": "ERROR", "object": {"code": 410}}


def test_kopf_gets_the_newest_version_of_each_chunk_and_no_object() -> None:
    two = event_line("ADDED", job(0, "6")) + event_line("ADDED", job(1, "7"))
    split = event_line("ADDED", job(2, "8"))
    lines, dispatcher = lines_for_kopf(two + split[:40], split[40:], event_line("DELETED", job(1, "9")))
    assert lines == [bookmark("7"), bookmark("8"), bookmark("9")]
    assert dispatcher.jobs() == [JobKey("team", "job-0"), JobKey("team", "job-2")]
    assert lines_for_kopf(event_line("BOOKMARK", {"metadata": {"resourceVersion": "5"}}))[0] == [bookmark("5")]


@pytest.mark.parametrize("status", [{"kind": "Status", "code": 410}, {"kind": "Status", "code": 500}, None, "text"])
def test_after_any_error_of_the_server_the_objects_are_listed_again(status: Any) -> None:
    lines, dispatcher = lines_for_kopf(event_line("ADDED", job(0, "6")) + event_line("ERROR", status))
    assert lines == [EXPIRED]
    assert dispatcher.jobs() == [JobKey("team", "job-0")]


@pytest.mark.parametrize(
    "line", [b"[]\n", b'{"type": "BOOKMARK", "object": {"metadata": null}}\n', b'{"type": "ADDED"}\n']
)
def test_a_line_that_is_no_event_is_passed_over(line: bytes) -> None:
    lines, dispatcher = lines_for_kopf(line + event_line("ADDED", job(0, "6")))
    assert lines == [bookmark("6")]
    assert dispatcher.jobs() == [JobKey("team", "job-0")]


LIST = URL("https://server/api/v1/pods?limit=20")
WATCH = URL("https://server/api/v1/pods?watch=true")


def test_only_a_watch_that_stays_closed_is_a_problem() -> None:
    now = 0.0
    watches = OpenWatches(lambda: now)
    watches.begin(URL("https://server/apis"))
    watches.end(URL("https://server/apis"))
    watches.begin(WATCH)
    now += 1000.0
    assert watches.problem() == "", "a stream is open, or a request waits"
    watches.end(WATCH)
    now += MAX_CLOSED_SECONDS
    assert watches.problem() == "", "it may be requested again"
    watches.begin(LIST)
    now += 100.0
    assert watches.problem() == "", "kopf lists before it watches again"
    watches.end(LIST)
    now += MAX_CLOSED_SECONDS + 1.0
    assert watches.problem() == "the watch of /api/v1/pods ended 7 s ago"


def test_a_watch_that_is_requested_in_vain_is_unserved_until_the_server_responds() -> None:
    now = 0.0
    watches = OpenWatches(lambda: now)
    for _ in range(4):
        watches.begin(WATCH)
        watches.end(WATCH)
        now += 2.0
    assert watches.problem() == "", "kopf requests it again"
    assert watches.unserved() == "the API server has not served the watch of /api/v1/pods for 8 s"
    watches.begin(LIST)
    assert watches.unserved()
    watches.serve(LIST)
    assert watches.unserved() == ""
    watches.end(LIST)
    now += MAX_CLOSED_SECONDS + 1.0
    watches.begin(WATCH)
    assert watches.unserved() == "the API server has not served the watch of /api/v1/pods for 7 s"
    watches.serve(WATCH)
    now += 1000.0
    assert watches.unserved() == ""
