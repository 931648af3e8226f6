"""Fuzz target: HTTP requests to the application of the reporting API, in this process."""

import asyncio
import json
import logging
import re
import tempfile
import urllib.parse
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

from support.backends.model_backend import KEY, job
from support.fuzzing.logs import DefectLog
from support.fuzzing.pipelines import (
    PIPELINE_TOKENS,
    PipelineChecks,
    messages,
    running_commits,
    running_planner,
    single_messages,
)
from support.fuzzing.target import DefectError
from support.reporting.json_web_token import json_web_token
from support.reporting.node_api import AGENTS, NODE, NOW, ApiServer, report
from wattloop_operator.api.reporting_source import Reporting
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.auth.authorizers import ClusterNodeAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.cluster.reported_objects import ClusterNodePods
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.local.report_server import RECURRENCE, LocalTokens, local_progress
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.nodes import NodeService
from wattloop_operator.reporting.pipeline_service import PipelineService
from wattloop_operator.reporting.progress_writer import MAX_PROGRESS_BYTES
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import open_store
from wattloop_operator.store.attempt_progress import text_of

SEPARATOR = b"\n%%\n"
MAX_REQUESTS = 16
SECONDS_PER_INPUT = 3600.0
MAX_ANSWER_BYTES = 64 * 1024
# The documented responses, and those of HTTP for an unknown path or method.
CODES = {200, 307, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 503}
# Epochs are written with twelve digits.
ROUNDING = 1e-9
METHOD = re.compile(r"[A-Z]{1,20}")
Message = MutableMapping[str, Any]


@dataclass(frozen=True)
class Request:
    """One request of an input."""

    method: str
    path: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass
class Answer:
    """The response."""

    code: int = 0
    body: bytes = b""
    route: str = ""


class ReportingTarget:
    """The reporting API on a real store; an input is a few successive requests.

    Each request is a line of method and path, lines of headers, an empty line and a body; a line of %% separates
    requests. ``{own}``, ``{token}`` and ``{agent}`` stand for the path of a recurrence, its token and an agent's token;
    ``{trainer}`` and ``{trainer-token}`` for those of one with the source KubeflowTrainer.

    Checks: only documented responses, each of them short JSON; no error in the log; a report changes only the progress
    of its own recurrence, which never goes back and has a bounded size; a rank's message changes only the pipeline of
    its own recurrence, whose ranks never contradict each other, and its directive is valid.

    Attributes:
        accepted_routes: Paths of the routes that have accepted a request.
    """

    tokens = (
        b"POST {own}/progress\n", b"GET {own}/decision\n", b"POST /v1/nodes/node-1/energy\n", b"\n%%\n",
        b"authorization: Bearer {token}\n", b"authorization: Bearer {agent}\n", b"content-type: application/json\n",
        b"content-length: 99999999999999999999999\n", b'"sequence": ', b'"epoch": ', b'"metric": ', b'"gpus": [',
        b'"uuid": ', b'"profile": [', b'"finished": true', b'"rank": 1', b"NaN", b"Infinity", b"1e308", b"1e999",
        b"9223372036854775807", b"9" * 5000, b"[" * 2000, b'"\\ud800"', b'"\\u0000"', b"%00", b"%2e%2e/", b"//",
        b"\xff\xfe", b"\xc2\xb2", b'"lastUpdatedTime": "2026-03-01T12:00:00Z"', b'"metrics": [', *PIPELINE_TOKENS
    )  # fmt: skip

    def __init__(self) -> None:
        self._seconds = 0.0
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._store = self._stack.enter_context(open_store(f"sqlite:///{folder / 'wattloop.db'}"))
        self._log = self._stack.enter_context(DefectLog("wattloop_operator", "asyncio", level=logging.ERROR))
        tokens = LocalTokens(folder)
        self._recurrence = decide(Snapshot(job()), Attempt(0, 0, "slot-0", NOW))
        self._name, self._other, trainer = self._recurrence.metadata.name, "another", "trainer"
        other = _of_another_job(self._recurrence, self._other)
        source = Reporting(source="KubeflowTrainer")
        for each in (self._recurrence, other, _of_another_job(self._recurrence, trainer, reporting=source)):
            self._store.objects.create(RECURRENCE, KEY.namespace, each.metadata.name, each.to_wire())
        token = tokens.create_file(KEY.namespace, self._name).read_text()
        api = ClusterApi(ApiServer())
        limits = ReportLimits(lambda: self._seconds)
        reviews = TokenReviews(api, lambda: self._seconds, limits.count_review)
        nodes = NodeService(
            ClusterNodeAuthorizer(reviews, lambda: self._seconds, AGENTS).authorize,
            ClusterNodePods(api, lambda: self._seconds).attempts_of,
            self._store.pod_energies,
            self._now,
        )
        progress_store = local_progress(self._store, lambda: None)
        service = ReportService(progress_store, tokens, limits=limits, max_wait_seconds=0.0)
        commits = self._stack.enter_context(running_commits(self._store.pipelines, self._now))
        pipelines = PipelineService(progress_store, tokens, commits, limits, clock=lambda: self._seconds)
        self._stack.enter_context(running_planner(self._store.pipelines, pipelines.read_state, self._now))
        self._pipelines = PipelineChecks(self._store, self._recurrence, other, self._now)
        self.app = create_app(service, nodes, pipelines)
        self._names = {
            b"{own}": f"/v1/namespaces/{KEY.namespace}/recurrences/{self._name}".encode(),
            b"{other}": f"/v1/namespaces/{KEY.namespace}/recurrences/{self._other}".encode(),
            b"{trainer}": f"/v1/namespaces/{KEY.namespace}/recurrences/{trainer}".encode(),
            b"{token}": token.encode(),
            b"{trainer-token}": tokens.create_file(KEY.namespace, trainer).read_text().encode(),
            b"{agent}": json_web_token("agent").encode(),
        }
        self.accepted_routes: set[str] = set()
        self._loop = asyncio.new_event_loop()

    def seeds(self) -> list[bytes]:
        """Requests as trainings and agents send them, and a few that are rejected."""
        gpu = {
            "uuid": "GPU-0",
            "start_energy_millijoules": 1_000,
            "energy_millijoules": 5_000,
            "start_time_seconds": 1.0,
            "time_seconds": 6.5,
        }
        limit = {"power_limit_watts": 200.0, "energy_joules": 90.0, "time_seconds": 0.5, "epochs": 0.1}
        first: dict[str, Any] = {"process": "p", "sequence": 1, "epoch": 1.0, "metric": 0.5, "evaluations": 1}
        second = {
            **first,
            "sequence": 2,
            "epoch": 2.5,
            "metric": 0.95,
            "consecutive_reached": 1,
            "gpus": [gpu],
            "gpu_product": "NVIDIA H100",
            "max_power_limit_watts": 700.0,
            "power_limit_watts": 500.0,
            "profile": [limit],
        }
        many = {**second, "sequence": 3, "gpus": [{**gpu, "uuid": f"GPU-{number}"} for number in range(64)]}
        bodies = [first, second, many, {**second, "sequence": 4, "finished": True}, {**first, "rank": 3}]
        sent = [_request("POST", "{own}/progress", "{token}", body) for body in bodies]
        node = _request("POST", f"/v1/nodes/{NODE}/energy", "{agent}", report())
        decision = _request("GET", "{own}/decision", "{token}", None)
        other = _request("POST", "{other}/progress", "{token}", first)
        ranks = [_request(method, f"{{own}}/{path}", "{token}", form.to_json()) for method, path, form in messages()]
        further = [
            _request(method, f"{{own}}/{path}", "{token}", form.to_json()) for method, path, form in single_messages()
        ]
        status = {"lastUpdatedTime": "2026-03-01T12:00:00Z", "metrics": [{"name": "accuracy", "value": "0.5"}]}
        unauthorized = _request("POST", "{own}/progress", "nobody", first)
        return [
            *sent,
            node,
            decision,
            other,
            unauthorized,
            *(
                _request("POST", f"{{{name}}}/trainer-status", f"{{{token}}}", {"trainerStatus": status})
                for name, token in (("own", "token"), ("trainer", "trainer-token"))
            ),
            *(each.replace(b"{own}", b"{other}") for each in (ranks[0], ranks[2], ranks[-1])),
            *further,
            SEPARATOR.join(sent),
            SEPARATOR.join((decision, sent[1], node)),
            SEPARATOR.join(ranks),
            SEPARATOR.join((*ranks[:2], *further, ranks[2])),
        ]

    def check(self, data: bytes) -> None:
        self._log.clear()
        # Time passes, so that caches and rate limits expire however long the run takes.
        self._seconds += SECONDS_PER_INPUT
        self._reset()
        before = self._read(self._name)
        for request in self._requests(data):
            answer = self._loop.run_until_complete(self._ask(request))
            _check_answer(request, answer)
            if answer.code == HTTPStatus.OK:
                self.accepted_routes.add(answer.route)
            if b"/pipeline/" in request.path and answer.code == HTTPStatus.OK:
                self._pipelines.check(answer.body)
            after = self._read(self._name)
            _check_change(before, after)
            before = after
        self._log.check()
        if self._read(self._other).status != self._recurrence.status:
            raise DefectError("a report changed another recurrence")
        self._pipelines.check_other()

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._stack.close()

    def _now(self) -> datetime:
        return NOW + timedelta(seconds=self._seconds)

    def _reset(self) -> None:
        self._pipelines.reset()
        stored = self._store.objects.get(RECURRENCE, KEY.namespace, self._name)
        wire, version = self._recurrence.to_wire(), stored.resource_version
        self._store.objects.replace(RECURRENCE, KEY.namespace, self._name, wire, expected_version=version)
        self._store.attempt_progress.delete(self._recurrence)

    def _read(self, name: str) -> TrainingAttempt:
        stored = self._store.objects.get(RECURRENCE, KEY.namespace, name)
        (attempt,) = self._store.attempt_progress.attempts([stored.read_as(TrainingRecurrence)])
        size = len(text_of(attempt.progress))
        if size > MAX_PROGRESS_BYTES:
            raise DefectError(f"a progress of {size} bytes")
        return attempt

    def _requests(self, data: bytes) -> Iterator[Request]:
        for part in data.split(SEPARATOR)[:MAX_REQUESTS]:
            for name, value in self._names.items():
                part = part.replace(name, value)  # noqa: PLW2901 - each name in turn
            head, _, body = part.partition(b"\n\n")
            first, *lines = head.split(b"\n")
            method, _, path = first.partition(b" ")
            pairs = [line.partition(b":") for line in lines]
            headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs if name.strip()]
            text = method.decode("latin-1")
            yield Request(text if METHOD.fullmatch(text) else "POST", path, headers, body)

    async def _ask(self, request: Request) -> Answer:
        # As `BoundedConnection` passes a request to an application.
        raw_path, _, query = request.path.partition(b"?")
        path = urllib.parse.unquote(raw_path.decode("latin-1"))
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": path if path.startswith("/") else f"/{path}",
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": request.headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
        }
        answer, half = Answer(), len(request.body) // 2
        chunks = iter(((request.body[:half], True), (request.body[half:], False)))

        async def receive() -> Message:
            chunk, is_followed = next(chunks, (None, False))
            if chunk is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": chunk, "more_body": is_followed}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.code = message["status"]
            else:
                answer.body += message.get("body", b"")

        await self.app(scope, receive, send)
        answer.route = getattr(scope.get("route"), "path", "")
        return answer

    @property
    def modes(self) -> set[str]:
        """The modes of the directives that ranks have got."""
        return self._pipelines.modes


def _of_another_job(recurrence: TrainingAttempt, name: str, **changes: object) -> TrainingAttempt:
    spec, metadata = recurrence.spec, recurrence.metadata
    job_ref = spec.job_ref.model_copy(update={"uid": f"{name}-uid"})
    return recurrence.model_copy(
        update={
            "metadata": metadata.model_copy(update={"name": name}),
            "spec": spec.model_copy(update={"job_ref": job_ref, **changes}),
        }
    )


def _request(method: str, path: str, token: str, body: object) -> bytes:
    head = f"{method} {path}\nauthorization: Bearer {token}\ncontent-type: application/json\n\n"
    return head.encode() + (b"" if body is None else json.dumps(body).encode())


def _check_answer(request: Request, answer: Answer) -> None:
    summary = f"{request.method} {request.path!r}: {answer.code} with {len(answer.body)} bytes"
    if answer.code not in CODES or len(answer.body) > MAX_ANSWER_BYTES:
        raise DefectError(f"{summary}: {answer.body[:200]!r}")
    if request.method != "HEAD" and answer.code != 307:
        json.loads(answer.body, parse_constant=_reject_constant)


def _reject_constant(name: str) -> None:
    raise DefectError(f"an answer has {name}")


def _check_change(before: TrainingAttempt, after: TrainingAttempt) -> None:
    if before.spec != after.spec:
        raise DefectError("a report changed the spec")
    if before.status != after.status:
        raise DefectError("a report changed the status")
    old, new = before.progress, after.progress
    if float(new.epoch or 0) < float(old.epoch or 0) * (1 - ROUNDING) - ROUNDING:
        raise DefectError(f"progress went back: {old} then {new}")
