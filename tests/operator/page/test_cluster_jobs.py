"""The jobs of a cluster: what is read when, and the commands that say the same."""

import asyncio
import copy
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from support.databases.many_jobs import LONGEST, NAMESPACE, RUNNING, job_body, running_recurrence
from wattloop.errors import OperationError
from wattloop_operator.cluster.api import GPU_NODES, RECURRING_TRAINING_JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.domain.names import JobKey
from wattloop_operator.page.change_stream import ChangeStreams, OpenStreams, ViewerPage
from wattloop_operator.page.cluster_jobs import ClusterJobs
from wattloop_operator.page.cluster_reader import GPU_NODES_SECONDS, MAX_AGE_SECONDS, READ_SECONDS, ClusterReader
from wattloop_operator.page.cluster_view import cluster_view
from wattloop_operator.page.job_view import conditions_view, job_view, jobs_view
from wattloop_operator.page.month_view import month_view
from wattloop_operator.page.page_app import of_source, page_routes
from wattloop_operator.page.rendering import rendered
from wattloop_operator.reconcile.energy.gpu_node_status import MAX_AGE

KEY = JobKey(NAMESPACE, LONGEST)
NOW = datetime(2026, 3, 2, 3, 12, tzinfo=UTC)


class ListedObjects:
    """A transport with a job and its running attempt, which only lists, and the time that its responses take."""

    def __init__(self) -> None:
        self.requests = 0
        self.now = 0.0
        self.is_hanging = False
        self.before_answer: Callable[[], object] = lambda: None
        self.bodies = {True: [job_body(LONGEST)], False: [running_recurrence(LONGEST)]}
        self.gpu_nodes: list[dict[str, Any]] = []
        self.gpu_node_requests = 0
        self.failing: Exception | None = None
        for each in (*self.bodies[True], *self.bodies[False]):
            each["metadata"]["resourceVersion"] = "1"

    def __call__(self, request: Request) -> dict[str, Any]:
        if request.path.endswith(GPU_NODES.plural):
            self.gpu_node_requests += 1
            if self.failing is not None:
                raise self.failing
            return {"metadata": {"resourceVersion": "1"}, "items": self.gpu_nodes}
        self.requests += 1
        self.before_answer()
        if self.is_hanging:
            self.now += 30
            raise OperationError("the API server does not answer")
        is_job = request.path.endswith(RECURRING_TRAINING_JOBS.plural)
        return {"metadata": {"resourceVersion": "1"}, "items": self.bodies[is_job]}


def test_each_command_reads_the_cluster_that_the_page_reads() -> None:
    server = ListedObjects()
    reader = ClusterReader(ClusterApi(server), "context lab", clock=lambda: server.now)
    jobs = ClusterJobs(reader, ("--context", "lab", "--kubeconfig", "lab.yaml"))
    assert (
        jobs_view(jobs).command == "kubectl get rtj --all-namespaces --output=wide --context lab --kubeconfig lab.yaml"
    )
    job, conditions = job_view(jobs, KEY), conditions_view(jobs, KEY)
    of_job = f"{LONGEST} --namespace {NAMESPACE} --context lab --kubeconfig lab.yaml"
    assert job.command == f"kubectl wattloop history {of_job}"
    assert conditions.command == f"kubectl describe rtj {of_job}"
    assert cluster_view(jobs, NOW).command == "kubectl describe gpunodes --context lab --kubeconfig lab.yaml"


def test_a_server_that_does_not_answer_is_asked_once_for_all_pages_that_wait() -> None:
    server = ListedObjects()
    server.is_hanging = True
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))
    for _ in range(3):
        with pytest.raises(OperationError, match="does not answer"):
            jobs.version()
    assert server.requests == 1
    server.is_hanging = False
    server.now += READ_SECONDS
    assert jobs.keys() == (KEY,)


def test_an_unexpected_failure_is_logged_once_and_kept_for_all_pages(caplog: pytest.LogCaptureFixture) -> None:
    server = ListedObjects()
    server.bodies[True] = [{"metadata": {"resourceVersion": "1"}}]
    reader = ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now)
    for _ in range(2):
        with pytest.raises(OperationError, match="unexpected failure"):
            reader.objects()
    assert caplog.text.count("Traceback") == 1


def test_a_page_shows_known_objects_while_the_server_is_asked_for_newer_ones() -> None:
    server = ListedObjects()
    asked, answered = threading.Event(), threading.Event()
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))
    first = jobs.version()
    server.before_answer = lambda: (asked.set(), answered.wait(60))
    assert jobs.outdated_seconds() == 0.0
    server.now += 25 * 60
    server.bodies[True][0]["metadata"]["resourceVersion"] = "2"
    assert [jobs.version(), jobs.version()] == [first, first]
    old = rendered("jobs.html", jobs_view(jobs), jobs.outdated_seconds())
    assert "As it was 25 min ago" in old
    assert 'data-version=""' in old
    assert asked.wait(60)
    (thread,) = (each for each in threading.enumerate() if each.name == "live page")
    answered.set()
    thread.join(60)
    assert jobs.version() != first
    assert jobs.outdated_seconds() == 0.0
    assert server.requests == 4


def test_a_program_that_must_wait_for_newer_objects_takes_those_that_are_read_already() -> None:
    server = ListedObjects()
    asked, is_late = threading.Event(), threading.Event()

    def clock() -> float:
        if server.now >= READ_SECONDS + MAX_AGE_SECONDS:
            is_late.set()
        return server.now

    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=clock))
    first = jobs.version()
    server.before_answer = lambda: (asked.set(), is_late.wait(60))
    server.now += READ_SECONDS
    server.bodies[True][0]["metadata"]["resourceVersion"] = "2"
    assert jobs.version() == first
    assert asked.wait(60)
    server.now += MAX_AGE_SECONDS
    jobs.refresh()
    assert jobs.version() != first
    assert server.requests == 4


def test_the_version_of_a_history_changes_with_attempts_that_ended_and_with_settings_alone() -> None:
    server = ListedObjects()
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))

    def versions() -> tuple[str, str]:
        server.now += MAX_AGE_SECONDS
        jobs.refresh()
        job = jobs.job(KEY)
        return jobs.version(), job.version

    (job,), (attempt,) = server.bodies[True], server.bodies[False]
    first = versions()
    job["metadata"]["resourceVersion"] = attempt["metadata"]["resourceVersion"] = "2"
    reported = versions()
    assert reported[0] != first[0]
    assert reported[1] == first[1]
    job["metadata"]["generation"] = 2
    changed = versions()
    assert changed[1] != first[1]
    attempt["status"]["result"] = "Reached"
    assert versions()[1] != changed[1]


def test_a_month_of_a_cluster_has_the_kept_recurrences_says_so_and_is_no_csv() -> None:
    server = ListedObjects()
    usage = {"gpuEnergyJoules": "500.5", "durationSeconds": "10", "coveragePercent": "99", "devices": 1}
    ends = {"before": "2026-02-28T23:59:59Z", "first": "2026-03-01T00:00:00Z", "last": "2026-03-31T23:59:59.5Z"}
    for name, end in ends.items():
        ended = copy.deepcopy(server.bodies[False][0])
        ended["metadata"] |= {"name": name, "uid": name}
        ended["status"] |= {"result": "Reached", "completionTime": end, "usage": usage}
        server.bodies[False].append(ended)
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))
    ended["status"]["completionTime"] = "9999-12-31T23:59:59-01:00"
    (problem,) = month_view(jobs).missing
    assert "last: found the time '9999-12-31T23:59:59-01:00'" in problem
    ended["status"]["completionTime"] = ends["last"]
    ended["metadata"]["resourceVersion"] = "2"
    server.now += MAX_AGE_SECONDS
    jobs.refresh()
    view = month_view(jobs)
    assert view.month == "2026-03"
    (line,) = view.jobs
    assert (line.attempts, line.energy_joules, line.gpu_seconds) == (2, 1001.0, 20.0)
    assert "the cluster keeps as objects, the latest ones of each job that exists, since 2026-02-28" in view.partial
    shown = rendered("month.html", view)
    assert "since 2026-02-28" in shown
    assert "wattloop history --database URL --month 2026-03" in shown
    assert "month.csv" not in shown
    page = ViewerPage(jobs, ChangeStreams(jobs, OpenStreams()))
    transport = httpx.ASGITransport(of_source(page_routes(), page))

    async def read() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/month.csv", params={"month": "2026-03"})

    answer = asyncio.run(read())
    assert answer.status_code == 404
    assert "wattloop ui --database URL" in answer.text
    assert "It may have been deleted" not in answer.text


def test_gpus_of_an_attempt_on_several_nodes_are_in_the_sums_of_no_node_which_say_so() -> None:
    server = ListedObjects()
    (spread,) = server.bodies[False]
    alone = copy.deepcopy(spread)
    alone["metadata"] |= {"name": "alone", "uid": "alone"}
    spread["status"]["pods"] = [{"uid": "a", "node": "node-a"}, {"uid": "b", "node": "node-b"}]
    alone["status"]["pods"] = [{"uid": "c", "node": "node-b"}]
    server.bodies[False].append(alone)
    view = cluster_view(ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now)), NOW)
    lines = [(each.node, each.gpus, each.mean_power_watts, each.partial_attempts) for each in view.nodes]
    assert lines == [("node-a", 0, None, 1), ("node-b", 1, 250.0, 1)]
    assert [each.node for each in view.gpus] == ["node-a, node-b", "node-b"]
    assert rendered("cluster.html", view).count("part of 1 attempt is not included") == 2


def test_the_recent_power_of_a_node_is_known_if_that_of_each_gpu_is_and_as_old_as_the_oldest() -> None:
    server = ListedObjects()
    (first,) = server.bodies[False]
    second = copy.deepcopy(first)
    second["metadata"] |= {"name": "second", "uid": "second"}
    server.bodies[False].append(second)
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))

    def recent() -> tuple[float | None, datetime | None]:
        server.now += MAX_AGE_SECONDS
        jobs.refresh()
        (node,) = cluster_view(jobs, NOW).nodes
        return node.recent_power_watts, node.recent_until

    older, newer = datetime(2026, 3, 2, 3, 9, tzinfo=UTC), datetime(2026, 3, 2, 3, 10, tzinfo=UTC)
    first["status"]["progress"] |= {"powerWatts": "180.5", "lastReportTime": newer.isoformat()}
    assert recent() == (None, None)
    second["status"]["progress"] |= {"powerWatts": "20", "lastReportTime": older.isoformat()}
    assert recent() == (200.5, older)


def gpu_node(name: str, gpus: list[dict[str, Any]], **status: Any) -> dict[str, Any]:
    """A GPUNode of two minutes ago."""
    status = {"lastReportTime": "2026-03-02T03:10:00Z", "gpuCount": len(gpus), **status, "gpus": gpus}
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "status": status}


def holder(uid: str, pod: str = "web", namespace: str = NAMESPACE) -> dict[str, str]:
    return {"namespace": namespace, "pod": pod, "uid": uid}


def test_gpus_of_no_attempt_follow_with_their_power_their_limit_and_who_holds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ListedObjects()
    server.bodies[False][0]["status"]["pods"] = [{"uid": "digits", "node": "node-a"}]
    free = {"uuid": "GPU-1", "product": "H200", "powerWatts": "70.5", "limitWatts": "300", "maxLimitWatts": "700"}
    gpus = [
        {"uuid": "GPU-0", "powerWatts": "400", "pods": 1, "holders": [holder("digits")]},
        {"uuid": "GPU-2", "powerWatts": "90", "pods": 3, "holders": [holder("web", namespace="<i>")]},
        {"uuid": "GPU-3"},
        free | {"pods": 0},
    ]
    server.gpu_nodes = [gpu_node("node-a", gpus, freeGpus=1, freePowerWatts="70.5")]
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))
    view = cluster_view(jobs, NOW)
    assert [(each.gpu, each.gpus, each.attempt) for each in view.gpus] == [("", 1, RUNNING)]
    assert [(each.gpu, each.pods, each.holders) for each in view.other_gpus] == [
        ("GPU-1", 0, []), ("GPU-2", 3, ["<i>/web"]), ("GPU-3", None, []),
    ]  # fmt: skip
    (node,) = view.reported_nodes
    assert (node.gpus, node.free_gpus, node.power_watts, node.free_power_watts) == (4, 1, None, 70.5)
    shown = rendered("cluster.html", view)
    assert "&lt;i&gt;/web and 2 more" in shown
    assert all(text in shown for text in ("free", "70.5", "of 700", "not known", "2026-03-02 03:10"))
    old = cluster_view(jobs, NOW + MAX_AGE)
    (node,) = old.reported_nodes
    assert (node.gpus, node.free_gpus, node.power_watts, node.free_power_watts) == (4, None, None, None)
    assert {(each.pods, each.power_watts, each.limit_watts) for each in old.other_gpus} == {(None, None, None)}
    monkeypatch.setattr("wattloop_operator.page.cluster_view.GPUS_OF_PAGE", 3)
    second = cluster_view(jobs, NOW, 2)
    assert (second.total, second.pages, second.gpus, [each.gpu for each in second.other_gpus]) == (4, 2, [], ["GPU-3"])


def test_the_line_of_an_attempt_hides_no_gpu_that_others_hold_too() -> None:
    server = ListedObjects()
    status = server.bodies[False][0]["status"]
    status["pods"] = [{"uid": "digits", "node": "node-a"}]
    gpus = [
        {"uuid": "GPU-0", "pods": 1, "holders": [holder("web")]},
        {"uuid": "GPU-1", "pods": 1, "holders": [holder("digits")]},
        {"uuid": "GPU-2", "pods": 2, "holders": [holder("digits"), holder("web")]},
        {"uuid": "GPU-3", "pods": 0},
    ]
    server.gpu_nodes = [gpu_node("node-a", gpus)]
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))

    def others() -> list[str]:
        server.now += MAX_AGE_SECONDS
        jobs.refresh()
        return [each.gpu for each in cluster_view(jobs, NOW).other_gpus]

    assert others() == ["GPU-3", "GPU-0", "GPU-2"], "its line is of all that its pods alone hold"


def test_gpu_nodes_are_read_for_their_view_alone_and_a_failure_leaves_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = ListedObjects()
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))
    jobs_view(jobs)
    assert (server.requests, server.gpu_node_requests) == (2, 0)
    version = cluster_view(jobs, NOW).version
    for _ in range(3):
        cluster_view(jobs, NOW)
    assert server.gpu_node_requests == 1
    server.gpu_nodes = [gpu_node("node-a", [])]
    for server.failing in (OperationError("away"), StatusError(Request("GET", "/"), 500, "", ""), KeyError("items")):
        server.now += GPU_NODES_SECONDS
        jobs.refresh()
        for _ in range(2):
            view = cluster_view(jobs, NOW)
            assert "GPUNodes cannot be read now" in view.reported_unknown
            assert [each.attempt for each in view.gpus] == [RUNNING]
    assert server.gpu_node_requests == 4
    assert len([each for each in caplog.records if "GPUNodes" in each.getMessage()]) == 3
    server.failing = None
    server.now += GPU_NODES_SECONDS
    view = cluster_view(jobs, NOW)
    assert ([each.node for each in view.reported_nodes], view.version) == (["node-a"], version)
    server.gpu_nodes = [gpu_node("node-a", [{"uuid": 1}]), gpu_node("node-b", [])]
    server.now += GPU_NODES_SECONDS
    view = cluster_view(jobs, NOW)
    assert ([each.node for each in view.reported_nodes], view.reported_unknown) == (["node-b"], "")
    (problem,) = view.missing
    assert "GPUNode node-a: found an object that this version of Wattloop cannot read (status.gpus.0.uuid" in problem
