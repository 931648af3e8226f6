"""The jobs of a cluster: what is read when, and the commands that say the same."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import httpx
import pytest

from support.databases.many_jobs import LONGEST, NAMESPACE, job_body, running_recurrence
from wattloop.errors import OperationError
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import Request
from wattloop_operator.domain.names import JobKey
from wattloop_operator.page.change_stream import ChangeStreams, OpenStreams
from wattloop_operator.page.cluster_jobs import ClusterJobs
from wattloop_operator.page.cluster_reader import READ_SECONDS, ClusterReader
from wattloop_operator.page.cluster_view import cluster_view
from wattloop_operator.page.conditions_view import conditions_view
from wattloop_operator.page.job_view import job_view
from wattloop_operator.page.jobs_view import jobs_view
from wattloop_operator.page.page_app import of_source, page_routes
from wattloop_operator.page.rendering import rendered
from wattloop_operator.page.viewer_page import ViewerPage

KEY = JobKey(NAMESPACE, LONGEST)


class ListedObjects:
    """A transport with a job and its running attempt, which only lists, and the time that its responses take."""

    def __init__(self) -> None:
        self.requests = 0
        self.now = 0.0
        self.is_hanging = False
        self.bodies = {True: [job_body(LONGEST)], False: [running_recurrence(LONGEST)]}
        for each in (*self.bodies[True], *self.bodies[False]):
            each["metadata"]["resourceVersion"] = "1"

    def __call__(self, request: Request) -> dict[str, Any]:
        self.requests += 1
        if self.is_hanging:
            self.now += 30
            raise OperationError("the API server does not answer")
        is_job = request.path.endswith(RECURRING_TRAINING_JOBS.plural)
        return {"metadata": {"resourceVersion": "1"}, "items": self.bodies[is_job]}


def test_each_command_reads_the_cluster_that_the_page_reads() -> None:
    jobs = ClusterJobs(
        ClusterReader(ClusterApi(ListedObjects()), "context lab"), ("--context", "lab", "--kubeconfig", "lab.yaml")
    )
    assert (
        jobs_view(jobs).command == "kubectl get rtj --all-namespaces --output=wide --context lab --kubeconfig lab.yaml"
    )
    job, conditions = job_view(jobs, KEY), conditions_view(jobs, KEY)
    assert job is not None
    assert conditions is not None
    of_job = f"{LONGEST} --namespace {NAMESPACE} --context lab --kubeconfig lab.yaml"
    assert job.command == f"kubectl wattloop history {of_job}"
    assert conditions.command == f"kubectl describe rtj {of_job}"
    assert cluster_view(jobs).command == ""


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


def test_the_version_of_a_history_changes_with_attempts_that_ended_and_with_settings_alone() -> None:
    server = ListedObjects()
    jobs = ClusterJobs(ClusterReader(ClusterApi(server), "lab", clock=lambda: server.now))

    def versions() -> tuple[str, str]:
        server.now += READ_SECONDS
        job = jobs.job(KEY)
        assert job is not None
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


def test_a_month_of_a_cluster_is_no_empty_csv() -> None:
    jobs = ClusterJobs(ClusterReader(ClusterApi(ListedObjects()), "lab"))
    page = ViewerPage(jobs, ChangeStreams(jobs.version, OpenStreams()))
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
    view = cluster_view(ClusterJobs(ClusterReader(ClusterApi(server), "lab")))
    lines = [(each.node, each.gpus, each.mean_power_watts, each.partial_attempts) for each in view.nodes]
    assert lines == [("node-a", 0, None, 1), ("node-b", 1, 250.0, 1)]
    assert [each.node for each in view.gpus] == ["node-a, node-b", "node-b"]
    assert rendered("cluster.html", view).count("part of 1 attempt is not included") == 2
