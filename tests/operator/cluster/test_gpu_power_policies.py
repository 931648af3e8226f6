"""The bounds of nodes for the reporting API; tests/cluster/operator/test_policies.py uses a real server."""

import json
import logging
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.errors import OperationError
from wattloop.wire.node_energy import MAX_CLOCK_MEGAHERTZ, GpuBounds, NodeAnswer
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_operator.api.gpu_power_policy import MAX_MEGAHERTZ, GPUPowerPolicy
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.api.power_fields import MAX_WATTS
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.gpu_power_policies import (
    IN_FORCE,
    LABELS_SECONDS,
    POLICIES_SECONDS,
    NodePolicies,
    applies_to,
    bounds_of_node,
    gpu_power_policy_status,
    selector_of,
)


class Server:
    """An API server with policies and nodes."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.now = 0.0
        self.policies = [policy_body("fleet", {"powerLimit": {"maxWatts": 300}})]
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


def policy_body(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "managedFields": [{"manager": "kubectl"}], "annotations": {"a": "b"}}
    return {"apiVersion": "wattloop.dev/v1alpha1", "kind": "GPUPowerPolicy", "metadata": metadata, "spec": spec}


@pytest.fixture
def server() -> Server:
    return Server()


FLEET = GpuBounds("fleet", power_limit_watts=(0.0, 300.0))


def test_a_node_has_the_bounds_of_the_policies_that_select_it(server: Server) -> None:
    server.policies.append(policy_body("pool", {"nodeSelector": {"pool": "a100"}, "namespaces": ["vision"]}))
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
    server.policies = [policy_body("pool", {"nodeSelector": {"pool": "b"}})]
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
    server.policies.append(policy_body("of-tomorrow", {"humidityPercent": {"max": 50}}))
    assert server.node_policies.bounds_for_node("first") is None
    assert "GPUPowerPolicy of-tomorrow" in caplog.text


def test_an_unknown_node_gets_no_bounds(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    assert server.node_policies.bounds_for_node("unknown") is None
    assert "the cluster has no such node" in caplog.text


def test_more_policies_than_an_agent_accepts_are_an_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.policies = [policy_body(f"p{number}", {}) for number in range(257)]
    assert server.node_policies.bounds_for_node("first") is None
    assert "257 apply, an agent accepts 256; merge some" in caplog.text


def test_a_cluster_without_the_kind_has_no_bounds(server: Server) -> None:
    assert server.node_policies.bounds_for_node("first") == (FLEET,)
    server.failing = StatusError(Request("GET", "/"), 404, "NotFound", "the server could not find the resource")
    server.now = POLICIES_SECONDS
    assert server.node_policies.bounds_for_node("first") == ()


def policy(name: str, **spec: Any) -> GPUPowerPolicy:
    return GPUPowerPolicy.from_wire({"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(
    ("selector", "labels", "applies"),
    [
        ({}, {}, True),
        ({}, {"pool": "a"}, True),
        ({"pool": "a"}, {"pool": "a", "zone": "b"}, True),
        ({"pool": "a"}, {"pool": "b"}, False),
        ({"pool": "a"}, {}, False),
        ({"pool": "a", "zone": "b"}, {"pool": "a"}, False),
        ({"pool": ""}, {"pool": ""}, True),
        ({"pool": ""}, {}, False),
    ],
)
def test_a_policy_applies_to_nodes_with_all_its_labels(
    selector: dict[str, str], labels: dict[str, str], applies: bool
) -> None:
    assert applies_to(policy("p", nodeSelector=selector), labels) is applies


def test_a_node_has_the_bounds_of_the_policies_that_apply_sorted_by_name() -> None:
    policies = [
        policy("z-fleet", powerLimit={"minWatts": 150, "maxWatts": 350}, graphicsClock={"maxMegahertz": 1300}),
        policy("elsewhere", nodeSelector={"pool": "h200"}, powerLimit={"minWatts": 300}),
        policy(
            "a-team",
            nodeSelector={"pool": "a100"},
            gpuProducts=["NVIDIA A100-SXM4-80GB"],
            namespaces=["vision"],
            memoryClock={"minMegahertz": 1000},
        ),
    ]
    assert bounds_of_node(policies, {"pool": "a100"}) == (
        GpuBounds(
            "a-team",
            products=("NVIDIA A100-SXM4-80GB",),
            namespaces=("vision",),
            memory_clock_megahertz=(1000.0, MAX_CLOCK_MEGAHERTZ),
        ),
        GpuBounds("z-fleet", power_limit_watts=(150.0, 350.0), graphics_clock_megahertz=(0.0, 1300.0)),
    )


def test_a_product_that_nvml_cannot_name_matches_no_gpu_and_not_every_gpu() -> None:
    (bounds,) = bounds_of_node([policy("p", gpuProducts=["NVIDIA H200 ✨"], powerLimit={"maxWatts": 300})], {})
    assert bounds.products == ()


ranges = st.tuples(st.integers(1, MAX_WATTS), st.integers(1, MAX_WATTS)).map(sorted)
specs = st.fixed_dictionaries(
    {},
    optional={
        "gpuProducts": st.lists(st.text(min_size=1, max_size=128), max_size=3, unique=True),
        "namespaces": st.lists(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True), unique=True),
        "powerLimit": ranges.map(lambda ends: {"minWatts": ends[0], "maxWatts": ends[1]}),
        "memoryClock": st.integers(1, MAX_MEGAHERTZ).map(lambda clock: {"minMegahertz": clock}),
    },
)


@given(st.lists(specs, max_size=4))
def test_every_valid_policy_survives_the_wire_form(valid: list[dict[str, Any]]) -> None:
    bounds = bounds_of_node([policy(f"p{number}", **spec) for number, spec in enumerate(valid)], {})
    assert NodeAnswer.from_json(json.loads(json.dumps(NodeAnswer(bounds=bounds).to_json()))).bounds == bounds
    assert len(bounds) == len(valid)


def test_no_range_of_a_policy_exceeds_the_agents_wire_form() -> None:
    assert MAX_WATTS <= MAX_LIMIT_WATTS
    assert MAX_MEGAHERTZ <= MAX_CLOCK_MEGAHERTZ


def test_the_selector_is_a_label_selector() -> None:
    assert selector_of(policy("p")) == ""
    assert selector_of(policy("p", nodeSelector={"nvidia.com/gpu.product": "A100"})) == "nvidia.com/gpu.product=A100"


NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
POLICY = GPUPowerPolicy.from_wire(
    {"metadata": {"name": "fleet", "generation": 3}, "spec": {"nodeSelector": {"pool": "a100"}}}
)
EVERYWHERE = GPUPowerPolicy.from_wire({"metadata": {"name": "all", "generation": 1}, "spec": {}})


@pytest.mark.parametrize(
    ("policy", "nodes", "status", "reason", "message"),
    [
        (POLICY, 1, ConditionStatus.TRUE, "NodesSelected", "It applies to 1 node;"),
        (POLICY, 12, ConditionStatus.TRUE, "NodesSelected", "It applies to 12 nodes;"),
        (POLICY, 0, ConditionStatus.FALSE, "NoNodes", "No node has the labels pool=a100;"),
        (EVERYWHERE, 0, ConditionStatus.FALSE, "NoNodes", "The cluster has no node."),
    ],
)
def test_the_status_has_the_number_of_nodes(
    policy: GPUPowerPolicy, nodes: int, status: ConditionStatus, reason: str, message: str
) -> None:
    found = gpu_power_policy_status(policy, nodes, NOW)
    (condition,) = found.conditions
    assert (found.nodes, found.observed_generation) == (nodes, policy.metadata.generation)
    assert (condition.type, condition.status, condition.reason) == (IN_FORCE, status, reason)
    assert condition.message.startswith(message)


def test_an_unchanged_status_is_equal_and_a_change_has_its_time() -> None:
    later = NOW + timedelta(hours=1)
    first = gpu_power_policy_status(POLICY, 2, NOW)
    known = POLICY.model_copy(update={"status": first})
    assert gpu_power_policy_status(known, 2, later) == first
    assert gpu_power_policy_status(known, 3, later).conditions[0].last_transition_time == NOW
    assert gpu_power_policy_status(known, 0, later).conditions[0].last_transition_time == later
