"""An informer follows its kind through the ends, gaps and errors of its lists and watches."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from wattloop.commands.settings import Address
from wattloop_operator.cluster.api import JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.informer.informer import MAX_FAILING_SECONDS, Informer
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, watched_kinds
from wattloop_operator.domain.names import JobKey
from wattloop_operator.http.http_service import HttpService

TIMEOUT_SECONDS = 60.0
END, SILENCE, REFUSAL = "end", "silence", 410


def workload(name: str, version: int) -> dict[str, Any]:
    """A Job of the recurring job "digits"."""
    labels = {"wattloop.dev/job": "digits", "wattloop.dev/recurrence": name}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(version), "labels": labels}
    }


def event(kind: str, body: Any) -> str:
    return json.dumps({"type": kind, "object": body})


class ScriptedServer:
    """An API server that answers lists and watches from scripts; after its last one, a watch is silent.

    Args:
        lists: For each list its version and its objects, one a page; the last answers each further list.
        watches: For each watch its lines, then whether it ends or is silent; or the status that refuses it.
    """

    def __init__(self, lists: list[tuple[int, list[dict[str, Any]]]], *watches: list[str] | int) -> None:
        self.listed = 0
        self.versions: list[int] = []
        self._lists = lists
        self._watches = watches

    def objects(self, request: Request) -> Response:
        """A page, or a watch."""
        if request.query_params.get("watch"):
            self.versions.append(int(request.query_params["resourceVersion"]))
            number = len(self.versions) - 1
            script = self._watches[number] if number < len(self._watches) else [SILENCE]
            if isinstance(script, int):
                return JSONResponse({"kind": "Status", "code": script, "message": "too old"}, script)
            return StreamingResponse(self._lines(script))
        first = int(request.query_params.get("continue", 0))
        self.listed += not first
        version, objects = self._lists[min(self.listed, len(self._lists)) - 1]
        more = {"continue": str(first + 1)} if first + 1 < len(objects) else {}
        page = objects[first : first + 1]
        return JSONResponse({"metadata": {"resourceVersion": str(version), **more}, "items": page})

    async def _lines(self, script: list[str]) -> AsyncIterator[str]:
        for line in script:
            if line == END:
                return
            if line == SILENCE:
                await asyncio.sleep(TIMEOUT_SECONDS)
            yield f"{line}\n"


class Followed:
    """A running informer of Jobs, and what it told."""

    def __init__(self, client: ApiClient, clock: Callable[[], float]) -> None:
        self.cache = ObjectCache()
        self.enqueued: list[JobKey] = []
        kinds = tuple(kind for kind in watched_kinds(self.cache) if kind.resource == JOBS)
        self.dispatcher = EventDispatcher(
            kinds, enqueue=self._enqueue, job_deleted=lambda *_: None, heartbeat=lambda _: None, all_listed=lambda: None
        )
        transport = HttpTransport(client)
        self.informer = Informer(ClusterApi(transport), transport.watch, kinds[0], self.dispatcher, clock=clock)
        self._changed = threading.Condition()

    def _enqueue(self, _: Any, key: JobKey) -> None:
        with self._changed:
            self.enqueued.append(key)
            self._changed.notify_all()

    def await_changes(self, count: int) -> None:
        """Wait for this number of changes."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.enqueued) >= count, TIMEOUT_SECONDS), self.enqueued

    @property
    def versions(self) -> dict[str, int]:
        """The stored Jobs with their versions."""
        return {each.key[1]: each.version for each in self.cache.workloads.all()}


@contextmanager
def following(server: ScriptedServer, clock: Callable[[], float] = lambda: 0.0) -> Iterator[Followed]:
    """An informer that follows a server, and ends although its last watch is silent."""
    service = HttpService("API server", Starlette(routes=[Route(JOBS.path(), server.objects)]), Address("127.0.0.1", 0))
    service.start()
    try:
        with ApiClient(Configuration(host=service.url)) as client:
            followed = Followed(client, clock)
            thread = threading.Thread(target=followed.informer.run)
            thread.start()
            try:
                yield followed
            finally:
                followed.informer.stop()
                thread.join(TIMEOUT_SECONDS)
            assert not thread.is_alive()
    finally:
        service.stop()


def test_all_pages_are_listed_and_a_watch_that_ends_goes_on_from_its_newest_version() -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    changes = [event("MODIFIED", workload("a", 6)), event("DELETED", workload("b", 7)), bookmark, END]
    further = [event("ADDED", workload("c", 10)), SILENCE]
    server = ScriptedServer([(5, [workload("a", 3), workload("b", 4)])], changes, further)
    with following(server) as followed:
        followed.await_changes(5)
        assert followed.versions == {"a": 6, "c": 10}
        assert followed.dispatcher.synced
    assert followed.enqueued == [JobKey("team", "digits")] * 5
    assert server.listed == 1
    assert server.versions == [5, 9]


@pytest.mark.parametrize(
    "watch",
    [
        REFUSAL,
        [event("ERROR", {"kind": "Status", "code": 410})],
        [event("ERROR", {"kind": "Status", "code": 500})],
        [event("ERROR", None)],
    ],
    ids=["refused with 410", "410", "500", "no status"],
)
def test_after_an_error_of_a_watch_the_objects_are_listed_again_and_those_that_are_gone_are_removed(watch: Any) -> None:
    lists = [(5, [workload("a", 3), workload("b", 4)]), (8, [workload("b", 7)])]
    with following(ScriptedServer(lists, watch, [event("ADDED", workload("c", 9)), SILENCE])) as followed:
        # Two of the first list, a change and a deletion by the second, and an event.
        followed.await_changes(5)
        assert followed.versions == {"b": 7, "c": 9}


@pytest.mark.parametrize(
    "line", ["[]", "{", event("ADDED", None), event("BOOKMARK", {"metadata": None}), event("ADDED", {"metadata": {}})]
)
def test_a_line_that_is_no_event_is_passed_over(line: str) -> None:
    with following(ScriptedServer([(5, [])], [line, event("ADDED", workload("a", 6)), SILENCE])) as followed:
        followed.await_changes(1)
        assert followed.versions == {"a": 6}


def test_a_watch_that_is_refused_for_longer_than_a_moment_is_a_problem_until_it_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wattloop_operator.cluster.informer.informer.RETRY_SECONDS", 0.001)
    times = iter([0.0, MAX_FAILING_SECONDS, MAX_FAILING_SECONDS + 1.0])
    refused, asked = threading.Event(), threading.Event()

    class RefusingServer(ScriptedServer):
        def objects(self, request: Request) -> Response:
            if len(self.versions) == 2 and request.query_params.get("watch"):
                refused.set()
                assert asked.wait(TIMEOUT_SECONDS)
            return super().objects(request)

    server = RefusingServer([(5, [])], 503, 403, [event("ADDED", workload("a", 6)), SILENCE])
    with following(server, lambda: next(times)) as followed:
        assert refused.wait(TIMEOUT_SECONDS)
        assert followed.informer.problem() == ""
        assert followed.informer.problem() == (
            "the API server has not served the watch of Job (/apis/batch/v1/jobs) for 7 s"
        )
        asked.set()
        followed.await_changes(1)
        assert followed.informer.problem() == ""
