"""The reporting API over HTTP, on a real store."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.backends.model_backend import KEY, job
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.local.recurrence_store import LocalProgressStore
from wattloop_operator.local.report_server import LocalTokens, running_report_server
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.limits import ReportLimits
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store, open_store

KIND = "TrainingRecurrence"
NOW = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)
BODY: dict[str, Any] = {"sequence": 1, "epoch": 1.0, "metric": 0.5, "evaluations": 1}


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

    def read(self, name: str) -> TrainingRecurrence:
        stored = self.store.objects.get(KIND, KEY.namespace, name)
        assert stored is not None
        metadata = {**stored.body["metadata"], "resourceVersion": str(stored.resource_version)}
        return TrainingRecurrence.from_wire({**stored.body, "metadata": metadata})

    def progress(self, name: str) -> Progress | None:
        return self.read(name).status.progress

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

    def ask(self, url: str, token: str | None, data: bytes | None = None, **headers: str) -> Reply:
        sent = {"Content-Type": "application/json"} if data is not None else {}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(
            url, data=data, headers={**sent, **{key.replace("_", "-"): value for key, value in headers.items()}}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return Reply(response.status, dict(response.headers), json.loads(response.read()))
        except urllib.error.HTTPError as refusal:
            with refusal:
                text = refusal.read()
                return Reply(refusal.code, dict(refusal.headers), json.loads(text) if text else None)


@contextlib.contextmanager
def running_api(folder: Path, limits: ReportLimits | None = None, *, max_wait_seconds: float = 0.0) -> Iterator[Api]:
    """Run the API during the block, with its files in this folder. Ranks wait at most so long for a verdict."""
    with open_store(folder / "wattloop.db") as store:
        tokens = LocalTokens(folder)
        woken: list[bool] = []
        service = ReportService(
            LocalProgressStore(store.objects, lambda: woken.append(True)),
            tokens,
            limits=limits,
            max_wait_seconds=max_wait_seconds,
        )
        with running_report_server(service) as url:
            yield Api(url, store, tokens, woken=woken)
