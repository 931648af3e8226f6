"""kopf's handlers store and enqueue what people write, and kopf is run again whatever ends its watches."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kopf
import pytest
from kubernetes.client import ApiClient, Configuration
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.control_plane.job_manifest import job_manifest
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.settings import Address
from wattloop_operator.cluster.api import FREQUENCY_PLANS, GPU_POWER_POLICIES, RECURRING_TRAINING_JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.informer.informer import Informer
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, watched_kinds
from wattloop_operator.controller import kopf_handlers, kopf_operator
from wattloop_operator.controller.kopf_handlers import LIST_OBJECTS, KopfMemo, release
from wattloop_operator.controller.kopf_operator import KopfOperator
from wattloop_operator.domain.names import JobKey
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.telemetry.operator_logs import set_up_logs

TIMEOUT_SECONDS = 60.0
GROUP, VERSION = "wattloop.dev", "v1alpha1"
KINDS = (RECURRING_TRAINING_JOBS, FREQUENCY_PLANS, GPU_POWER_POLICIES)
# kopf watches nothing before it has found this resource.
NAMESPACES = {"name": "namespaces", "singularName": "namespace", "kind": "Namespace", "namespaced": False, "verbs": []}
DEEP = 3000


def job(name: str, version: int = 4) -> dict[str, Any]:
    """A job in the form of the API server."""
    manifest = job_manifest(name)
    manifest["metadata"] |= {"namespace": "team", "uid": f"uid of {name}", "resourceVersion": str(version)}
    return manifest


def text_of(body: dict[str, Any]) -> str:
    """The JSON of an object; a job whose name begins with "deep" is nested deep."""
    text = json.dumps(body)
    if not body["metadata"]["name"].startswith("deep"):
        return text
    return text[:-1] + ', "deep": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}"


class FakeApiServer:
    """What kopf and the lists before it ask an API server for: discovery, lists and watches.

    Attributes:
        jobs: The jobs of a list.
        events: Texts of events, each sent to one watch of jobs, which is then open; an empty one ends the watch.
        added: What lists have, too, from the first event on.
        page_status: Status of the next second page of jobs; 0: it succeeds.
        watches: The queries of the watches of jobs.
        refused: What is refused once each because of too many requests: paths, and `watch`.
    """

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.jobs = list(jobs)
        self.events: list[str] = []
        self.added: list[dict[str, Any]] = []
        self.page_status = 0
        self.watches: list[str] = []
        self.refused: list[str] = []
        path = f"/apis/{GROUP}/{VERSION}"
        group = {"name": GROUP, "versions": [{"version": VERSION}], "preferredVersion": {"version": VERSION}}
        resources = [
            {
                "name": kind.plural,
                "singularName": kind.kind.lower(),
                "kind": kind.kind,
                "namespaced": kind != GPU_POWER_POLICIES,
                "verbs": ["list", "watch", "patch"],
            }
            for kind in KINDS
        ]
        self.app = Starlette(
            routes=[
                Route("/api", lambda request: self._refusal(request.url.path) or JSONResponse({"versions": ["v1"]})),
                Route("/api/v1", lambda _: JSONResponse({"resources": [NAMESPACES]})),
                Route("/apis", lambda _: JSONResponse({"groups": [group]})),
                Route(path, lambda _: JSONResponse({"resources": resources})),
                *(Route(f"{path}/{kind.plural}", self.objects) for kind in KINDS),
            ]
        )

    async def objects(self, request: Request) -> Response:
        """A page of a list, or a watch."""
        query = request.query_params
        is_jobs = request.url.path.endswith(RECURRING_TRAINING_JOBS.plural)
        if query.get("watch"):
            if is_jobs:
                if (refusal := self._refusal("watch")) is not None:
                    return refusal
                self.watches.append(query.get("fieldSelector", ""))
            return StreamingResponse(self._events() if is_jobs else self._silence())
        first, limit = int(query.get("continue", 0)), int(query["limit"])
        if first and self.page_status:
            status, self.page_status = self.page_status, 0
            return JSONResponse({"kind": "Status", "code": status, "message": "expired"}, status)
        left_out = {each.rpartition("=")[2] for each in query.get("fieldSelector", "").split(",")}
        jobs = [each for each in self.jobs if each["metadata"]["name"] not in left_out] if is_jobs else []
        metadata = {"resourceVersion": "5"} | ({"continue": str(first + limit)} if first + limit < len(jobs) else {})
        items = ",".join(text_of(each) for each in jobs[first : first + limit])
        page = f'{{"kind":"List","items":[{items}],"metadata":{json.dumps(metadata)}}}'
        return Response(page, media_type="application/json")

    def _refusal(self, what: str) -> Response | None:
        if what not in self.refused:
            return None
        self.refused.remove(what)
        return JSONResponse({"kind": "Status", "code": 429, "reason": "TooManyRequests"}, 429, {"Retry-After": "0"})

    async def _events(self) -> AsyncIterator[str]:
        # Has the headers sent, as the API server does at once.
        yield "\n"
        while self.events:
            event = self.events.pop(0)
            self.jobs, self.added = [*self.jobs, *self.added], []
            if not event:
                return
            yield event + "\n"
        await asyncio.sleep(TIMEOUT_SECONDS)

    async def _silence(self) -> AsyncIterator[str]:
        yield "\n"
        await asyncio.sleep(TIMEOUT_SECONDS)


def event(kind: str, body: dict[str, Any]) -> str:
    return f'{{"type":"{kind}","object":{text_of(body) if "metadata" in body else json.dumps(body)}}}'


class Running:
    """An operator of kopf, and what it has stored and told."""

    def __init__(self, client: ApiClient, url: str) -> None:
        self.cache = ObjectCache()
        self.known_at_start: set[str] = set()
        self.changes: list[tuple[str, str]] = []
        self._changed = threading.Condition()
        kinds = tuple(kind for kind in watched_kinds(self.cache) if kind.by_people)
        dispatcher = EventDispatcher(
            kinds,
            enqueue=lambda kind, key: self._tell(kind.resource.kind, key),
            job_deleted=lambda key, _: self._tell("deleted", key),
            heartbeat=lambda _: None,
            all_listed=lambda: self.known_at_start.update(self.jobs),
        )
        transport = HttpTransport(client)
        api = ClusterApi(transport)
        informers = [Informer(api, transport.watch, kind, dispatcher) for kind in kinds]
        self.operator = KopfOperator(informers, dispatcher, api, login=lambda: {"server": url})

    def _tell(self, what: str, key: JobKey) -> None:
        with self._changed:
            self.changes.append((what, key.name))
            self._changed.notify_all()

    def await_change(self, what: str, name: str) -> None:
        """Wait for a change."""
        with self._changed:
            assert self._changed.wait_for(lambda: (what, name) in self.changes, TIMEOUT_SECONDS), self.changes

    @property
    def jobs(self) -> dict[str, str]:
        """The stored jobs with their versions."""
        return {each.key[1]: str(each.value.metadata.resource_version) for each in self.cache.jobs.all()}


@contextmanager
def running(server: FakeApiServer) -> Iterator[Running]:
    """An operator of kopf that watches a server, until its thread has ended."""
    service = HttpService("API server", server.app, Address("127.0.0.1", 0))
    service.start()
    try:
        with ApiClient(Configuration(host=service.url)) as client:
            parts = Running(client, service.url)
            thread = threading.Thread(target=parts.operator.run)
            thread.start()
            try:
                yield parts
            finally:
                parts.operator.stop()
                thread.join(TIMEOUT_SECONDS)
            assert not thread.is_alive()
    finally:
        service.stop()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat at once what failed."""
    monkeypatch.setattr(kopf_operator, "RETRY_SECONDS", 0.001)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a state that nobody tells of."""
    pause = threading.Event()
    for _ in range(int(TIMEOUT_SECONDS / 0.02)):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it did not happen")


def test_all_jobs_are_known_before_work_starts_and_what_people_change_then_is_stored_and_enqueued() -> None:
    # More than two pages of kopf, the last of which is not full.
    names = [f"job-{number}" for number in range(2 * LIST_OBJECTS + 3)]
    server = FakeApiServer(*(job(name) for name in names))
    server.events = [
        event("MODIFIED", job("job-0", 7)),
        event("DELETED", job("job-1", 8)),
        event("ADDED", job("new", 9)),
    ]
    with running(server) as parts:
        parts.await_change("RecurringTrainingJob", "new")
        assert parts.known_at_start == set(names)
        assert parts.jobs.keys() == {*names, "new"} - {"job-1"}
        assert parts.jobs["job-0"] == "7"
    assert parts.changes.count(("RecurringTrainingJob", "job-2")) == 1, "kopf's own list has the known versions"
    assert ("deleted", "job-1") in parts.changes


# kopf goes on for five seconds after an error of one watch.
@pytest.mark.parametrize(
    ("page_status", "events"),
    exhaustive_after(
        [
            (410, []),
            (0, [event("ERROR", {"kind": "Status", "code": 410, "message": "too old"})]),
            (0, [event("ERROR", {"kind": "Status", "code": 500, "message": "failed"})]),
            (0, ["{"]),
        ]
    ),
    ids=["410 of a page", "410", "500", "no JSON"],
)
def test_an_error_of_a_list_or_a_watch_has_the_jobs_listed_and_watched_again(
    page_status: int, events: list[str]
) -> None:
    server = FakeApiServer(*(job(f"job-{number}") for number in range(LIST_OBJECTS + 1)))
    server.page_status, server.events = page_status, [*events, *("" for _ in events), event("ADDED", job("new", 9))]
    with running(server) as parts:
        parts.await_change("RecurringTrainingJob", "new")
        assert parts.operator.problem() == ""


@pytest.mark.usefixtures("restored_logging")
def test_what_an_api_server_with_too_many_requests_refuses_is_asked_again_and_no_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kopf_handlers, "RETRY_SECONDS", 0.001)
    set_up_logs("json", "warning")
    server = FakeApiServer(job("first"))
    server.refused, server.events = ["/api", "/api", "watch"], [event("ADDED", job("new", 9))]
    with running(server) as parts:
        parts.await_change("RecurringTrainingJob", "new")
    assert server.refused == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("by", exhaustive_after(["list", "event"]))
def test_a_job_that_is_nested_deep_is_named_and_left_out_of_the_watch_until_it_is_gone(by: str) -> None:
    deep = job("deep-1", 6)
    server = FakeApiServer(job("victim"), *([deep] if by == "list" else []))
    if by == "event":
        server.events, server.added = [event("ADDED", deep)], [deep]
    with running(server) as parts:
        parts.await_change("RecurringTrainingJob", "deep-1")
        until(lambda: server.watches[-1:] == ["metadata.name!=deep-1"])
        assert "it is nested more than 200 levels deep" in parts.cache.jobs.refused(("team", "deep-1")).problem
        assert parts.jobs.keys() == {"victim"}
        parts.operator.watch_again()
        parts.cache.jobs.remove(("team", "deep-1"), deep["metadata"]["uid"])
        server.jobs = server.jobs[:1]
        parts.operator.watch_again()
        until(lambda: server.watches[-1] == "")
        assert parts.operator.problem() == ""


def test_watches_that_end_again_and_again_are_a_problem_that_names_their_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_operator, "MAX_SHORT_RUNS", 2)
    server = FakeApiServer(job("victim"))
    server.events = [event("ERROR", {"kind": "Status", "code": 500, "message": "broken"}), ""] * 2
    with running(server) as parts:
        until(lambda: "have ended: " in parts.operator.problem())
        assert parts.operator.problem().startswith(
            "the watches of RecurringTrainingJob, FrequencyPlan, GPUPowerPolicy have ended: WatchingError"
        )
        assert "broken" in parts.operator.problem()
    assert len(server.watches) == 2


def test_a_watch_that_misses_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_operator, "ENDING_SECONDS", 0.0)
    monkeypatch.setattr(kopf_operator, "CANCEL_AGAIN_SECONDS", 0.001)
    missed: list[str] = []

    async def watch() -> None:
        while len(missed) < 3:
            try:
                await asyncio.sleep(TIMEOUT_SECONDS)
            except asyncio.CancelledError:
                missed.append("a cancellation")

    async def operate(*, memo: KopfMemo, **_: Any) -> None:
        watching = asyncio.create_task(watch())
        await release(memo=memo)
        await watching

    monkeypatch.setattr(kopf, "operator", operate)
    with running(FakeApiServer()) as parts:
        until(lambda: len(missed) == 3)
        assert parts.operator.problem() == ""


def test_a_run_of_kopf_that_begins_to_end_and_does_not_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_operator, "MAX_ENDING_SECONDS", -1.0)
    ended = threading.Event()

    async def operate(*, memo: KopfMemo, **_: Any) -> None:
        await release(memo=memo)
        assert ended.wait(TIMEOUT_SECONDS)

    monkeypatch.setattr(kopf, "operator", operate)
    with running(FakeApiServer()) as parts:
        until(lambda: parts.operator.problem() != "")
        assert parts.operator.problem() == (
            "the watches of RecurringTrainingJob, FrequencyPlan, GPUPowerPolicy have ended, and kopf has not; its log "
            "says why"
        )
        ended.set()
