"""Objects that this version of Wattloop cannot read, as an upgrade has them: each is a problem of its own job."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.backends.model_backend import KEY, job
from support.backends.sample_reports import START
from support.recurrence_objects import recurrence_object
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES, ClusterApi, ResourceType
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.cluster_backend import ClusterBackend
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, watched_kinds
from wattloop_operator.cluster.start_checks import RECHECK_SECONDS
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.domain.names import JobKey
from wattloop_operator.driver import reconcile
from wattloop_operator.store.store import open_store
from wattloop_operator.workloads.injection import ClusterAddresses

OTHER = JobKey("team", "other")
LATER: dict[str, Any] = {"laterField": 1}


class Server:
    """An API server that stores objects, of which it checks nothing, and remembers what was created."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.version = 100

    def __call__(self, request: Request) -> dict[str, Any]:
        path, body = request.path.removesuffix("/status"), dict(request.body or {})
        self.version += 1
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            body["metadata"] = {"uid": path, **body["metadata"], "resourceVersion": str(self.version)}
            if "dryRun" in request.query:
                return body
            self.created.append(body)
            self.objects[path] = body
        elif request.method == "PATCH":
            stored = self.objects[path]
            metadata = stored["metadata"] | body["metadata"] | {"resourceVersion": str(self.version)}
            self.objects[path] = stored | body | {"metadata": metadata}
        elif path not in self.objects:
            raise StatusError(request, 404, "NotFound", "not found")
        return self.objects[path]


class Operator:
    """What follows from the events of an API server."""

    def __init__(self, backend: ClusterBackend, cache: ObjectCache, server: Server) -> None:
        self.backend = backend
        self.server = server
        self.enqueued: list[JobKey] = []
        self.dispatcher = EventDispatcher(
            watched_kinds(cache),
            enqueue=lambda _, key: self.enqueued.append(key),
            job_deleted=lambda *_: None,
            heartbeat=lambda _: None,
            all_listed=lambda: None,
        )

    def see(self, resource: ResourceType, body: dict[str, Any]) -> None:
        self.server.objects[resource.path("team", body["metadata"]["name"])] = body
        self.dispatcher.on_read(self.dispatcher.kind(resource), body)

    def run(self) -> list[tuple[str, str]]:
        """Reconcile the jobs of the events until none follows; gives kind and name of what was created."""
        self.server.created.clear()
        while self.enqueued:
            reconcile(self.backend, self.enqueued.pop(), lambda: START)
        return [(each["kind"], each["metadata"]["name"]) for each in self.server.created]

    def notes(self) -> str:
        return "; ".join(each["note"] for each in self.server.created if each["kind"] == "Event")


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    cache, server = ObjectCache(), Server()
    api = ClusterApi(server)
    access = WorkloadAccess(api, cache, lambda: ClusterAddresses(report_url="http://operator"), lambda: 0.0)
    with closing(open_store(tmp_path / "wattloop.db")) as store:
        backend = ClusterBackend(
            api=api,
            cache=cache,
            workloads=access,
            store=store,
            sample_decision=lambda *_: None,
            clock=lambda: START,
            monotonic=lambda: 0.0,
            reporter="test",
            receive=lambda *_: None,
        )
        yield Operator(backend, cache, server)


def job_body(key: JobKey = KEY, version: int = 5, **spec: Any) -> dict[str, Any]:
    body = job(continuous=True).to_wire()
    body["metadata"] |= {"name": key.name, "resourceVersion": str(version)}
    body["metadata"] |= {"uid": "other-uid"} if key == OTHER else {}
    body["spec"] |= spec
    return body


@pytest.mark.parametrize(
    "change",
    exhaustive_after(
        [{"status": {"startTime": "2026-03-01T12:00:00Z"} | LATER}, {"status": LATER | {"result": "Reached"}},
         {"problem": "it is nested too deep"}]
    ),
)  # fmt: skip
def test_a_job_with_a_recurrence_that_cannot_be_read_starts_no_second_one_and_says_why(
    change: dict[str, Any], operator: Operator
) -> None:
    recurrence = recurrence_object("digits-00000-s-0") | change
    recurrence["metadata"]["labels"] = {"wattloop.dev/job": KEY.name}
    operator.see(TRAINING_RECURRENCES, recurrence)
    operator.see(RECURRING_TRAINING_JOBS, job_body())
    operator.see(RECURRING_TRAINING_JOBS, job_body(OTHER))
    created = operator.run()
    assert "Job" in {kind for kind, name in created if name.startswith(OTHER.name)}
    assert {kind for kind, name in created if name.startswith(KEY.name)} == {"Event"}
    assert "TrainingRecurrence team/digits-00000-s-0: " in operator.notes()
    assert operator.backend.requeue_after_seconds(KEY) == RECHECK_SECONDS
    # Once it is gone, or can be read, the job goes on.
    operator.dispatcher.on_deleted(operator.dispatcher.kind(TRAINING_RECURRENCES), recurrence)
    assert "TrainingRecurrence" in {kind for kind, _ in operator.run()}


def test_a_job_that_cannot_be_read_says_why_and_the_others_go_on(operator: Operator) -> None:
    operator.see(RECURRING_TRAINING_JOBS, job_body(**LATER))
    operator.see(RECURRING_TRAINING_JOBS, job_body(OTHER))
    created = operator.run()
    assert {kind for kind, name in created if name.startswith(KEY.name)} == {"Event"}
    assert (
        "this version of Wattloop cannot read it (spec.laterField: Extra inputs are not permitted)" in operator.notes()
    )
    assert {kind for kind, name in created if name.startswith(OTHER.name)} == {"TrainingRecurrence", "Job", "Event"}
    operator.see(RECURRING_TRAINING_JOBS, job_body(version=6))
    assert "TrainingRecurrence" in {kind for kind, _ in operator.run()}
