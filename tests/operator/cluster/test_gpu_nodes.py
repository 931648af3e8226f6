"""GPUNodes are written within bounds; tests/cluster/operator/test_node_energy.py uses a real server."""

import logging
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.reporting.node_api import GPU
from wattloop.errors import OperationError
from wattloop.wire.node_energy import NodeGpu, NodeReport
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.gpu_nodes import MAX_WRITES_PER_SECOND, GpuNodeWriter

START = datetime(2026, 3, 1, tzinfo=UTC)


class Server:
    """An API server with Nodes and GPUNodes, and the writer with its agents, in virtual time."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.written: dict[str, Mapping[str, Any]] = {}
        self.made: dict[str, Mapping[str, Any]] = {}
        self.failing: Exception | None = None
        self.seconds = 0.0
        self.writer = GpuNodeWriter(
            ClusterApi(self), lambda: START + timedelta(seconds=self.seconds), lambda: self.seconds
        )

    def __call__(self, request: Request) -> dict[str, Any]:
        self.requests[request.method] += 1
        if self.failing is not None:
            raise self.failing
        parts = request.path.split("/")
        if request.method == "GET":
            return {"metadata": {"name": parts[-1], "uid": f"uid-{parts[-1]}"}}
        name = request.body["metadata"]["name"]
        if request.method == "POST":
            self.made[name] = request.body
        elif name not in self.made:
            raise StatusError(request, 404, "NotFound", "not found")
        else:
            assert parts[-2:] == [name, "status"]
            self.written[name] = request.body["status"]
        return dict(request.body)

    def report(self, *nodes: str, watts: float = 70.0, after: float = 5.0) -> None:
        """Some seconds later, each node's agent reports its GPU."""
        self.seconds += after
        energy, clock = round(1000 * watts * self.seconds), 6.0 + self.seconds
        for node in nodes:
            gpu = NodeGpu("GPU-0", energy, 10, clock, "counter", GPU.product)
            self.writer.receive(NodeReport(node, "ledger", 1, (gpu,), complete=True))


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_gpu_node_is_made_once_is_owned_by_its_node_and_has_the_power_between_two_reports(server: Server) -> None:
    server.report("a")
    server.writer.write_due()
    assert server.requests == {}, "one report says no power"
    server.report("a")
    server.writer.write_due()
    assert server.made["a"]["metadata"] == {
        "name": "a",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-a"}],
    }
    assert (server.written["a"]["freeGpus"], server.written["a"]["freePowerWatts"]) == (1, "70")
    assert server.requests == {"PATCH": 2, "GET": 1, "POST": 1}


def test_an_hour_of_a_node_that_does_not_change_takes_a_write_every_five_minutes(server: Server) -> None:
    for _ in range(720):
        server.report("a")
        server.writer.write_due()
    # The first one makes the object.
    assert server.requests == {"PATCH": 13, "GET": 1, "POST": 1}


def test_however_many_nodes_report_a_second_has_so_many_writes_and_none_waits_for_ever(server: Server) -> None:
    names = [f"node-{index}" for index in range(3 * MAX_WRITES_PER_SECOND)]
    for _ in range(2):
        server.report(*names)
    for second in range(3):
        server.writer.write_due()
        assert len(server.written) == (second + 1) * MAX_WRITES_PER_SECOND
    server.requests.clear()
    server.writer.write_due()
    assert server.requests == {}


def test_a_server_that_refuses_is_named_once_and_asked_again_a_minute_later(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    request = Request("PATCH", "/")
    for server.failing in (StatusError(request, 403, "Forbidden", "gpunodes is forbidden"), OperationError("away")):
        for _ in range(26):
            server.report("a", "b")
            server.writer.write_due()
    (logged,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert "GPUNodes are not up to date: RejectedError: gpunodes is forbidden" in logged.getMessage()
    assert server.requests["PATCH"] <= 2 * 5, "not with each of 52 reports"
    server.failing = None
    for _ in range(13):
        server.report("a", "b")
        server.writer.write_due()
    assert server.written.keys() == {"a", "b"}


def test_a_node_is_asked_again_a_minute_after_an_unexpected_failure(server: Server) -> None:
    server.failing = ZeroDivisionError("whatever")
    for _ in range(2):
        server.report("a")
    server.writer.write_due()
    server.failing = None
    server.report("a", after=30.0)
    server.writer.write_due()
    assert server.requests["PATCH"] == 1
    server.report("a", after=30.0)
    server.writer.write_due()
    assert server.written["a"]["powerWatts"] == "70"


def test_the_power_of_an_agent_that_reports_once_an_hour_is_that_of_the_hour(server: Server) -> None:
    for _ in range(2):
        server.report("a", after=3600.0)
    server.writer.write_due()
    assert server.written["a"]["powerWatts"] == "70"


def test_figures_of_gpus_that_cannot_be_read_any_more_or_are_gone_do_not_stay(server: Server) -> None:
    for _ in range(2):
        server.report("a")
    last = server.seconds
    server.writer.write_due()
    gpu = NodeGpu("GPU-0", 700_000, 10, 6.0 + last, "counter")
    for seconds in (5.0, 599.0):
        server.seconds = last + seconds
        server.writer.receive(NodeReport("a", "ledger", 2, (gpu,), complete=True))
    server.writer.write_due()
    assert server.written["a"]["powerWatts"] == "70"
    server.seconds = last + 600.0
    server.writer.receive(NodeReport("a", "ledger", 3, (gpu,), complete=True))
    server.writer.write_due()
    assert "powerWatts" not in server.written["a"]
    assert (server.written["a"]["gpuCount"], server.written["a"]["freeGpus"]) == (1, 1)
    for seconds in (659.0, 660.0):
        assert server.written["a"]["gpuCount"] == 1
        server.seconds = last + seconds
        server.writer.receive(NodeReport("a", "ledger", 4, complete=True))
        server.writer.write_due()
    assert server.written["a"] == {"lastReportTime": "2026-03-01T00:11:10Z", "gpuCount": 0, "gpus": []}


def test_an_operator_that_starts_after_a_node_lost_its_gpus_writes_that_and_makes_no_gpu_node(server: Server) -> None:
    server.made["a"] = {}
    for seconds in (0.0, 59.0, 60.0):
        assert server.requests == {}, "an agent that starts has no GPUs yet"
        server.seconds = seconds
        for node in ("a", "without"):
            server.writer.receive(NodeReport(node, "ledger", 1, complete=True))
        server.writer.write_due()
    assert server.written == {"a": {"lastReportTime": "2026-03-01T00:01:00Z", "gpuCount": 0, "gpus": []}}
    assert server.requests == {"PATCH": 2}


def test_a_new_ledger_leaves_a_status_that_is_due(server: Server) -> None:
    for _ in range(2):
        server.report("a")
    server.writer.receive(NodeReport("a", "new", 1, (NodeGpu("GPU-0", 10**9, 10, 1e6, "counter"),), complete=True))
    server.writer.write_due()
    assert server.written["a"]["powerWatts"] == "70"


def test_a_node_without_gpus_and_a_new_ledger_have_no_power(server: Server) -> None:
    for _ in range(2):
        server.seconds += 5.0
        server.writer.receive(NodeReport("empty", "ledger", 1))
    server.report("a")
    server.writer.receive(NodeReport("a", "new", 1, (NodeGpu("GPU-0", 10**9, 10, 1e6, "counter"),), complete=True))
    server.writer.write_due()
    assert server.requests == {}
