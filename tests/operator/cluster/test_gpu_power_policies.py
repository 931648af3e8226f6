"""The bounds of nodes for the reporting API; tests/cluster/operator/test_policies.py uses a real server."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from wattloop.errors import OperationError
from wattloop.wire.node_energy import GpuBounds
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.gpu_power_policies import LABELS_SECONDS, POLICIES_SECONDS, NodePolicies


class Server:
    """An API server with policies and nodes."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.now = 0.0
        self.policies = [policy("fleet", {"powerLimit": {"maxWatts": 300}})]
        self.labels = {"first": {"pool": "a100"}, "second": {}}
        self.failing: Exception | None = None
        self.node_policies = NodePolicies(ClusterApi(self), lambda: self.now)

    def __call__(self, request: Request) -> dict[str, Any]:
        kind, _, name = request.path.partition("v1alpha1/")[2].partition("/") if "wattloop" in request.path else (
            "nodes", "", request.path.rpartition("/")[2])  # fmt: skip
        self.requests[kind] += 1
        if self.failing is not None:
            raise self.failing
        if kind == "gpupowerpolicies":
            return {"metadata": {"resourceVersion": "1"}, "items": self.policies}
        if name not in self.labels:
            raise StatusError(request, 404, "NotFound", f'nodes "{name}" not found')
        return {"metadata": {"name": name, "labels": self.labels[name]}}


def policy(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "managedFields": [{"manager": "kubectl"}], "annotations": {"a": "b"}}
    return {"apiVersion": "wattloop.dev/v1alpha1", "kind": "GPUPowerPolicy", "metadata": metadata, "spec": spec}


@pytest.fixture
def server() -> Server:
    return Server()


FLEET = GpuBounds("fleet", power_limit_watts=(0.0, 300.0))


def test_a_node_has_the_bounds_of_the_policies_that_select_it(server: Server) -> None:
    server.policies.append(policy("pool", {"nodeSelector": {"pool": "a100"}, "namespaces": ["vision"]}))
    assert server.node_policies.bounds_for_node("first") == (FLEET, GpuBounds("pool", namespaces=("vision",)))
    assert server.node_policies.bounds_for_node("second") == (FLEET,)


def test_policies_and_labels_are_read_once_for_any_number_of_reports(server: Server) -> None:
    for _ in range(100):
        server.node_policies.bounds_for_node("first")
        server.node_policies.bounds_for_node("second")
    assert server.requests == {"gpupowerpolicies": 1, "nodes": 2}


def test_a_change_applies_at_the_next_read(server: Server) -> None:
    assert server.node_policies.bounds_for_node("second") == (FLEET,)
    server.policies = []
    server.now = POLICIES_SECONDS
    assert server.node_policies.bounds_for_node("second") == ()
    server.policies = [policy("pool", {"nodeSelector": {"pool": "b"}})]
    server.labels["second"] = {"pool": "b"}
    server.now = LABELS_SECONDS
    assert server.node_policies.bounds_for_node("second") == (GpuBounds("pool"),)


@pytest.mark.parametrize(
    "failure",
    [
        OperationError("the API server does not answer"),
        StatusError(Request("GET", "/"), 403, "Forbidden", "gpupowerpolicies is forbidden"),
    ],
)
def test_unknown_policies_leave_agents_their_bounds_and_are_logged_once(
    failure: Exception, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.failing = failure
    with caplog.at_level(logging.ERROR):
        for _ in range(50):
            assert server.node_policies.bounds_for_node("first") is None
    assert server.requests["gpupowerpolicies"] == 1, "agents do not each wait for a dead server"
    assert len(caplog.records) == 1
    assert "node first: its GPUPowerPolicies are not known" in caplog.text
    server.failing = None
    server.now = POLICIES_SECONDS
    assert server.node_policies.bounds_for_node("first") == (FLEET,)


def test_a_policy_that_cannot_be_parsed_is_not_ignored(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.policies.append(policy("of-tomorrow", {"humidityPercent": {"max": 50}}))
    assert server.node_policies.bounds_for_node("first") is None
    assert "GPUPowerPolicy of-tomorrow" in caplog.text


def test_an_unknown_node_gets_no_bounds(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    assert server.node_policies.bounds_for_node("unknown") is None
    assert "the cluster has no such node" in caplog.text


def test_more_policies_than_an_agent_accepts_are_an_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.policies = [policy(f"p{number}", {}) for number in range(257)]
    assert server.node_policies.bounds_for_node("first") is None
    assert "257 apply, an agent accepts 256; merge some" in caplog.text


def test_a_cluster_without_the_kind_has_no_bounds(server: Server) -> None:
    assert server.node_policies.bounds_for_node("first") == (FLEET,)
    server.failing = StatusError(Request("GET", "/"), 404, "NotFound", "the server could not find the resource")
    server.now = POLICIES_SECONDS
    assert server.node_policies.bounds_for_node("first") == ()
