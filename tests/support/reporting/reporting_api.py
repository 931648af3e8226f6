"""The reporting API over HTTP, on a real store."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from support.backends.model_backend import KEY, job
from wattloop.commands.settings import Address
from wattloop.wire.wire_form import WireForm
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.local.report_server import LocalTokens, local_progress
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.pipeline.frontier_planning import plan_frontier
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reporting import pipeline_planner
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.pipeline_commits import PipelineCommits
from wattloop_operator.reporting.pipeline_planner import PipelinePlanner
from wattloop_operator.reporting.pipeline_service import PipelineService
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store, open_store

KIND = "TrainingRecurrence"
NOW = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)
BODY: dict[str, Any] = {"process": "p", "sequence": 1, "epoch": 1.0, "metric": 0.5, "evaluations": 1}


@dataclass(frozen=True)
class Reply:
    """Status, headers and body of an HTTP response."""

    code: int
    headers: dict[str, str]
    body: Any


@dataclass
class Api:
    """The running API with its store and tokens."""

    url: str
    store: Store
    tokens: LocalTokens
    made: int = 0
    woken: list[bool] = field(default_factory=list)

    def recurrence(self, **changes: Any) -> tuple[str, str]:
        """Create a recurrence and its token; returns name and token."""
        decided = decide(Snapshot(job()), Attempt(self.made, 0, f"slot-{self.made}", NOW))
        self.made += 1
        recurrence = decided.model_copy(update={"spec": decided.spec.model_copy(update=changes)})
        name = recurrence.metadata.name
        self.store.objects.create(KIND, KEY.namespace, name, recurrence.to_wire())
        return name, self.tokens.create_file(KEY.namespace, name).read_text()

    def read(self, name: str) -> TrainingAttempt:
        stored = self.store.objects.get(KIND, KEY.namespace, name)
        return self.store.attempt_progress.attempts([stored.read_as(TrainingRecurrence)])[0]

    def progress(self, name: str) -> Progress | None:
        """What is stored of the reports about a recurrence; None before the first."""
        read = self.read(name)
        return read.progress if read.progress_version else None

    def write_status(self, name: str, **changes: Any) -> None:
        """Change the status as the reconciler does."""
        read = self.read(name)
        status: TrainingRecurrenceStatus = read.status.model_copy(update=changes)
        self.store.objects.replace(
            KIND,
            KEY.namespace,
            name,
            read.model_copy(update={"status": status}).to_wire(),
            expected_version=int(read.metadata.resource_version or 0),
        )

    def path(self, name: str, namespace: str = KEY.namespace, last: str = "progress") -> str:
        return f"{self.url}/v1/namespaces/{namespace}/recurrences/{name}/{last}"

    def post(self, name: str, token: str | None, body: object = BODY, **headers: str) -> Reply:
        """Send a report; bytes are sent unchanged."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask(self.path(name), token, data, **headers)

    def send_message(self, path: str, token: str, form: WireForm, *, method: str = "POST") -> Reply:
        """Send a wire form to a path under the recurrence."""
        return self.ask(path, token, json.dumps(form.to_json()).encode(), method=method)

    def ask(
        self, url: str, token: str | None, data: bytes | None = None, *, method: str | None = None, **headers: str
    ) -> Reply:
        sent = {"Content-Type": "application/json"} if data is not None else {}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(
            url,
            data=data,
            headers={**sent, **{key.replace("_", "-"): value for key, value in headers.items()}},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                text = response.read()
                return Reply(response.status, dict(response.headers), json.loads(text) if text else None)
        except urllib.error.HTTPError as refusal:
            with refusal:
                text = refusal.read()
                return Reply(refusal.code, dict(refusal.headers), json.loads(text) if text else None)


def planned_here(request: PlanningRequest, now: datetime) -> PipelineFrontier:
    """Plan a pipeline in the test's own process."""
    return replace(plan_frontier(request), planned_at=now)


@contextlib.contextmanager
def running_api(
    folder: Path,
    limits: ReportLimits | None = None,
    *,
    max_wait_seconds: float = 0.0,
    database: str | None = None,
    plan: Callable[[PlanningRequest, datetime], PipelineFrontier] = planned_here,
) -> Iterator[Api]:
    """Run the API during the block, with its files in this folder.

    Args:
        limits: The rate limits; None for the defaults.
        max_wait_seconds: How long ranks wait for a verdict at most.
        database: The database's URL; None: a file in the folder.
    """
    with open_store(database or folder / "wattloop.db") as store:
        tokens = LocalTokens(folder)
        woken: list[bool] = []
        recurrences = local_progress(store, lambda: woken.append(True))
        service = ReportService(recurrences, tokens, limits=limits, max_wait_seconds=max_wait_seconds)
        commits = PipelineCommits(store.pipelines, lambda: datetime.now(UTC))
        pipelines = PipelineService(recurrences, tokens, commits, service.limits)
        app = create_app(service, pipelines=pipelines)
        planner = PipelinePlanner(store.pipelines, plan, pipelines.read_state, lambda: datetime.now(UTC))
        server = HttpService("reporting API", app, Address("127.0.0.1", 0), background=[commits, planner])
        with mock.patch.object(pipeline_planner, "POLL_SECONDS", 0.005), server:
            yield Api(server.url, store, tokens, woken=woken)
