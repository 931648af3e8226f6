"""The runtimes of TrainJobs are read at a bounded rate, and a change of one is noticed, at the latest at a start."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.backends.model_backend import KEY, job
from support.backends.sample_reports import START
from wattloop.errors import OperationError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.cluster_backend import ClusterBackend
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.start_checks import NO_RUNTIME, Runtime, TrainingRuntimes
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reconcile.actions import CreateRecurrence, StartWorkload
from wattloop_operator.reconcile.learning.changed_job import training_digest
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.next_actions import next_actions
from wattloop_operator.store.store import open_store
from wattloop_operator.workloads.injection import ClusterAddresses

GROUP = "/apis/trainer.kubeflow.org/v1alpha1"
OF_CLUSTER = f"{GROUP}/clustertrainingruntimes/torch"
OF_NAMESPACE = f"{GROUP}/namespaces/team/trainingruntimes/torch"
FORBIDDEN = 'runtimes is forbidden: User "operator" cannot get resource "clustertrainingruntimes"'
ATTEMPT = Attempt(0, 0, "slot", START)
KINDS = [
    {"name": "clustertrainingruntimes", "kind": "ClusterTrainingRuntime"},
    {"name": "trainingruntimes", "kind": "TrainingRuntime"},
]


class _Server:
    """An API server with two runtimes of the same name."""

    def __init__(self) -> None:
        self.runtimes: dict[str, dict[str, Any]] = {OF_CLUSTER: {"image": "a:1"}, OF_NAMESPACE: {"image": "b:1"}}
        self.error: tuple[int, str, str] | None = None
        self.created: list[Any] = []
        self.reads: list[str] = []

    def __call__(self, request: Request) -> dict[str, Any]:
        if request.path == GROUP:
            return {"resources": KINDS}
        if request.method == "POST":
            body = dict(request.body or {})
            self.created += [body] if body["kind"] != "Event" else []
            return body | {"metadata": body["metadata"] | {"uid": "u", "resourceVersion": "1"}}
        self.reads.append(request.path)
        if self.error is not None:
            raise StatusError(request, *self.error)
        if request.path not in self.runtimes:
            raise StatusError(request, 404, "NotFound", "not found")
        return {"metadata": {"resourceVersion": str(len(self.reads))}, "spec": self.runtimes[request.path]}


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def train_job(**reference: str) -> RecurringTrainingJob:
    spec = {"runtimeRef": {"name": "torch", **reference}, "trainer": {"numNodes": 1, "resourcesPerNode": {}}}
    workload = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    return job(template=workload)


@pytest.mark.parametrize(("kind", "path"), [("", OF_CLUSTER), ("TrainingRuntime", OF_NAMESPACE)])
def test_a_change_of_the_spec_is_noticed_by_one_read_an_interval_for_all_jobs(kind: str, path: str) -> None:
    server, clock = _Server(), _Clock()
    runtimes, reference = TrainingRuntimes(ClusterApi(server), clock), {"kind": kind} if kind else {}
    first = {runtimes.known(train_job(**reference)) for _ in range(3)}
    assert len(first) == 1
    assert first != {NO_RUNTIME}
    assert server.reads == [path]
    clock.now = 10
    assert {runtimes.known(train_job(**reference))} == first, "its metadata alone has changed"
    server.runtimes[path] = {"image": "c:1"}
    clock.now = 20
    assert runtimes.known(train_job(**reference)) not in first | {NO_RUNTIME}


def test_a_job_of_another_kind_asks_the_server_nothing() -> None:
    server = _Server()
    runtimes = TrainingRuntimes(ClusterApi(server), _Clock())
    assert (runtimes.known(job()), runtimes.current(job())) == (NO_RUNTIME, NO_RUNTIME)
    assert server.reads == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ((404, "NotFound", "not found"), "ClusterTrainingRuntime torch does not exist: create it"),
        (
            (403, "Forbidden", FORBIDDEN),
            "cannot be read, so a change of it would not be noticed: runtimes is forbidden",
        ),
        ((403, "Forbidden", FORBIDDEN), "the chart gives the right with an entry of operator.workloadKinds"),
    ],
)
def test_a_runtime_that_cannot_be_read_starts_nothing_and_is_as_it_was(error: tuple[int, str, str], text: str) -> None:
    server, clock = _Server(), _Clock()
    runtimes = TrainingRuntimes(ClusterApi(server), clock)
    server.error = error
    found = runtimes.known(train_job())
    assert found.digest is None
    assert text in found.problem
    assert runtimes.has_problem(train_job())
    server.error, clock.now = None, 10
    known = runtimes.known(train_job())
    assert known.digest
    assert not runtimes.has_problem(train_job())
    server.error, clock.now = error, 20
    assert runtimes.known(train_job()) == found._replace(digest=known.digest)


def test_without_an_answer_nothing_starts_and_nothing_changes() -> None:
    server, clock = _Server(), _Clock()
    runtimes = TrainingRuntimes(ClusterApi(server), clock)
    server.error = (500, "InternalError", "no")
    assert runtimes.known(train_job()) == Runtime(None)
    assert runtimes.known(train_job()) == Runtime(None)
    assert len(server.reads) == 1, "a server that fails is not asked at each event"
    with pytest.raises(OperationError):
        runtimes.current(train_job())
    server.error, clock.now = None, 10
    known = runtimes.known(train_job())
    server.error, clock.now = (429, "TooManyRequests", "no"), 20
    assert runtimes.known(train_job()) == known != Runtime(None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[_Server, _Clock, ClusterBackend]]:
    """A server with a job that is due, a clock, and their back end."""
    server, clock, cache = _Server(), _Clock(), ObjectCache()
    api = ClusterApi(server)
    access = WorkloadAccess(api, cache, lambda: ClusterAddresses(report_url="http://operator"), clock)
    body = train_job().to_wire()
    body["metadata"]["resourceVersion"] = "1"
    cache.put_job(body)
    with closing(open_store(tmp_path / "wattloop.db")) as store:
        yield (
            server,
            clock,
            ClusterBackend(
                api=api,
                cache=cache,
                workloads=access,
                store=store,
                sample_decision=lambda *_: None,
                clock=lambda: START,
                monotonic=clock,
                reporter="test",
                receive=lambda *_: None,
            ),
        )


def test_an_attempt_starts_with_the_runtime_as_it_is_then(cluster: tuple[_Server, _Clock, ClusterBackend]) -> None:
    """A corrected runtime is applied together with a run request, so no wait separates them."""
    server, _, backend = cluster
    before = backend.snapshot(KEY)
    assert before is not None
    server.runtimes[OF_CLUSTER] = {"image": "corrected"}
    with pytest.raises(StaleSnapshotError):
        backend.carry_out(before, CreateRecurrence(decide(before, ATTEMPT)))
    after = backend.snapshot(KEY)
    assert after.runtime_digest != before.runtime_digest
    backend.carry_out(after, CreateRecurrence(decide(after, ATTEMPT)))
    (created,) = server.created
    assert created["spec"]["templateDigest"] == training_digest(after)
    # The workload may follow much later, after a restart or once a quota admits it.
    server.runtimes[OF_CLUSTER] = {"image": "changed again"}
    with pytest.raises(StaleSnapshotError, match="its training runtime has changed"):
        backend.carry_out(after, StartWorkload(decide(after, ATTEMPT)))
    assert server.created == [created]


def test_a_job_whose_runtime_cannot_be_read_says_so_and_is_tried_again(
    cluster: tuple[_Server, _Clock, ClusterBackend],
) -> None:
    server, clock, backend = cluster
    before = backend.snapshot(KEY)
    assert before is not None
    assert backend.requeue_after_seconds(KEY) is None
    server.error = (403, "Forbidden", FORBIDDEN)
    with pytest.raises(StaleSnapshotError):
        backend.carry_out(before, CreateRecurrence(decide(before, ATTEMPT)))
    refused = backend.snapshot(KEY)
    assert FORBIDDEN in refused.refusal
    assert not any(isinstance(each, CreateRecurrence) for each in next_actions(refused, START).actions)
    assert backend.requeue_after_seconds(KEY) == 60
    server.error, clock.now = None, 60
    assert backend.snapshot(KEY) == before
    assert server.created == []
