"""Kueue's Workloads are read only for what waits in a queue, at a bounded rate, and as soon as Kueue exists."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.backends.model_backend import KEY, job
from support.backends.sample_reports import START
from support.recurrence_objects import recurrence_object
from wattloop.errors import OperationError
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.cluster_backend import ClusterBackend
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.workload_access import WorkloadAccess
from wattloop_operator.cluster.workload_waits import KueueWorkloads
from wattloop_operator.domain.snapshot import QueueWait, WorkloadPhase, WorkloadState
from wattloop_operator.store.store import open_store
from wattloop_operator.workloads.injection import ClusterAddresses

GROUP = "/apis/kueue.x-k8s.io"
QUOTA = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "1 more cpu needed"}


def recurrence_of(job: str = "digits", name: str = "digits-0") -> TrainingRecurrence:
    body = recurrence_object(name)
    body["spec"]["jobRef"]["name"] = job
    return TrainingRecurrence.from_wire(body)


def child(uid: str = "u", *, suspend: bool = True, queue: str = "team", version: str = "1") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    metadata = {"name": "digits-0", "uid": uid, "resourceVersion": version, "labels": labels}
    return {"metadata": metadata | {"creationTimestamp": "2026-03-01T12:00:00Z"}, "spec": {"suspend": suspend}}


class _Server:
    """An API server with or without Kueue, and with or without the right to list its Workloads."""

    def __init__(self, version: str = "v1beta2") -> None:
        self.version = version
        self.may_list = True
        self.owner = ""
        self.made = True
        self.fails = False
        self.listed: list[dict[str, Any]] = []
        self.calls: list[str] = []

    def __call__(self, request: Request) -> dict[str, Any]:
        self.calls.append(request.path)
        if not self.version:
            raise StatusError(request, 404, "NotFound", "not found")
        if request.path == GROUP:
            return {"preferredVersion": {"groupVersion": f"kueue.x-k8s.io/{self.version}"}}
        if not self.may_list:
            raise StatusError(request, 403, "Forbidden", "forbidden")
        if self.fails:
            raise StatusError(request, 500, "InternalError", "conversion webhook of Workload failed")
        assert request.path == f"{GROUP}/{self.version}/namespaces/team/workloads"
        owner = {"uid": self.owner or request.query["labelSelector"].partition("=")[2], "controller": True}
        metadata = {"name": "w", "creationTimestamp": "2026-03-01T12:00:00Z", "ownerReferences": [owner]}
        found: dict[str, Any] = {"metadata": metadata}
        found["spec"] = {"active": True, "podSets": [{"name": "main", "template": {"spec": {}}}]}
        found["status"] = {"conditions": [QUOTA], "requeueState": {"count": 1}}
        page = {"items": [found] if self.made else [], "metadata": {"resourceVersion": "1"}}
        answer: dict[str, Any] = request.parse(json.dumps(page).encode())
        self.listed = answer["items"]
        return answer


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def waits(queued: KueueWorkloads, body: dict[str, Any], recurrence: TrainingRecurrence | None = None) -> Any:
    state = WorkloadState("digits-0", uid=body["metadata"]["uid"])
    return queued.state(state, body, recurrence or recurrence_of()).queue


def test_a_workload_without_a_queue_or_that_runs_asks_the_server_nothing() -> None:
    server = _Server()
    queued = KueueWorkloads(ClusterApi(server), _Clock())
    assert waits(queued, child(queue="")) is None
    assert waits(queued, child(suspend=False)) is None
    assert server.calls == []
    assert queued.reads.poll_seconds(("team", "digits")) is None


def test_a_wait_is_read_once_an_interval_and_within_a_second_of_a_change_of_the_workload() -> None:
    server, clock = _Server(), _Clock()
    queued = KueueWorkloads(ClusterApi(server), clock)
    for _ in range(3):
        found = waits(queued, child())
        assert isinstance(found, QueueWait)
        assert (found.reason, found.message) == ("WaitingForQuota", "1 more cpu needed")
    assert len(server.calls) == 2
    assert queued.reads.poll_seconds(("team", "digits")) == 10
    clock.now = 10
    waits(queued, child())
    assert len(server.calls) == 3
    waits(queued, child(version="2"))
    assert len(server.calls) == 3
    assert queued.reads.poll_seconds(("team", "digits")) == 1
    clock.now = 11
    waits(queued, child(version="2"))
    assert len(server.calls) == 4
    assert waits(queued, child(suspend=False)) is None
    assert queued.reads.poll_seconds(("team", "digits")) is None


def test_a_workload_that_kueue_has_not_made_yet_is_looked_for_soon_and_then_less_often() -> None:
    server, clock = _Server(), _Clock()
    server.made = False
    queued = KueueWorkloads(ClusterApi(server), clock)
    delays = []
    for _ in range(6):
        found = waits(queued, child())
        assert "Kueue has made no Workload of it yet" in found.message
        delays.append(queued.reads.poll_seconds(("team", "digits")))
        clock.now += delays[-1] or 0
    assert delays == [1, 2, 4, 8, 10, 10]
    assert len(server.calls) == 1 + len(delays)
    server.made = True
    assert waits(queued, child()).reason == "WaitingForQuota"
    assert queued.reads.poll_seconds(("team", "digits")) == 10


def test_writes_of_the_child_do_not_delay_the_next_look_for_its_workload() -> None:
    server = _Server()
    server.made = False
    queued = KueueWorkloads(ClusterApi(server), _Clock())
    for version in "1234":
        waits(queued, child(version=version))
        assert queued.reads.poll_seconds(("team", "digits")) == 1


def test_ten_thousand_waiting_jobs_are_read_at_twenty_requests_a_second() -> None:
    server, clock = _Server(), _Clock()
    queued = KueueWorkloads(ClusterApi(server), clock)
    for number in range(10_000):
        waits(queued, child(uid=f"u{number}"), recurrence_of(f"job-{number}"))
    assert queued.reads.poll_seconds(("team", "job-7")) == 500
    queued.reads.keep(("team", "job-7"), ())
    assert queued.reads.poll_seconds(("team", "job-7")) is None


def test_what_was_read_of_workloads_that_are_gone_is_dropped(tmp_path: Path) -> None:
    server, cache = _Server(), ObjectCache()
    api = ClusterApi(server)
    access = WorkloadAccess(api, cache, lambda: ClusterAddresses(report_url="http://operator"), _Clock())
    with closing(open_store(tmp_path / "wattloop.db")) as store:
        backend = ClusterBackend(
            api=api,
            cache=cache,
            workloads=access,
            store=store,
            sample_decision=lambda *_: None,
            clock=lambda: START,
            monotonic=_Clock(),
            reporter="test",
            receive=lambda *_: None,
        )
        body = job().to_wire()
        body["metadata"]["resourceVersion"] = "1"
        cache.put_job(body)
        waits(access.queued, child("deleted"))
        assert access.poll_seconds(("team", "digits")) == 10
        assert backend.snapshot(KEY) is not None
        assert access.poll_seconds(("team", "digits")) is None


def test_a_workload_that_carries_the_label_alone_says_nothing_of_the_wait() -> None:
    server = _Server()
    server.owner = "another"
    assert (
        "Kueue has made no Workload of it yet" in waits(KueueWorkloads(ClusterApi(server), _Clock()), child()).message
    )


def test_of_a_workload_only_what_says_why_it_waits_is_kept() -> None:
    server = _Server()
    assert waits(KueueWorkloads(ClusterApi(server), _Clock()), child()).reason == "WaitingForQuota"
    (kept,) = server.listed
    assert kept["spec"] == {"active": True}
    assert kept["status"] == {"conditions": [QUOTA]}


def test_an_error_of_the_server_hides_why_an_attempt_waits_and_no_other_state() -> None:
    server, clock = _Server(), _Clock()
    queued = KueueWorkloads(ClusterApi(server), clock)
    server.fails = True
    found = waits(queued, child())
    assert found.reason == "NotReadable"
    assert "conversion webhook" in found.message
    server.fails, clock.now = False, 10
    assert waits(queued, child()).reason == "WaitingForQuota"


def test_an_attempt_that_had_started_is_not_judged_while_the_server_fails() -> None:
    """Its Workload says whether it was evicted or exceeded its time."""
    server = _Server()
    server.fails = True
    started = WorkloadState("digits-0", uid="u", phase=WorkloadPhase.RUNNING, started_at=START)
    with pytest.raises(OperationError, match="conversion webhook"):
        KueueWorkloads(ClusterApi(server), _Clock()).state(started, child(), recurrence_of())


def test_the_older_version_of_kueue_is_read_too() -> None:
    assert waits(KueueWorkloads(ClusterApi(_Server("v1beta1")), _Clock()), child()).reason == "WaitingForQuota"


def test_without_the_right_the_wait_says_how_to_get_it_and_the_right_needs_no_restart() -> None:
    server, clock = _Server(), _Clock()
    server.may_list = False
    queued = KueueWorkloads(ClusterApi(server), clock)
    found = waits(queued, child())
    assert found.reason == "NotReadable"
    assert "set operator.kueue to true in the values of the chart" in found.message
    server.may_list = True
    clock.now = 10
    assert waits(queued, child()).reason == "WaitingForQuota"


def test_kueue_that_is_installed_later_or_removed_needs_no_restart() -> None:
    server, clock = _Server(""), _Clock()
    queued = KueueWorkloads(ClusterApi(server), clock)
    assert waits(queued, child()).reason == "NotInstalled"
    server.version, clock.now = "v1beta2", 10
    assert waits(queued, child()).reason == "WaitingForQuota"
    server.version, clock.now = "", 20
    assert waits(queued, child()).reason == "NotInstalled"
    server.version, clock.now = "v1beta2", 30
    assert waits(queued, child()).reason == "WaitingForQuota"
