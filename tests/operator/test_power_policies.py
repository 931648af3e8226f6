"""The bounds that policies give a node, and the status of a policy."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.wire.node_energy import MAX_CLOCK_MEGAHERTZ, GpuBounds, NodeAnswer
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_operator.api.gpu_power_policy import MAX_MEGAHERTZ, GPUPowerPolicy
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.api.power_fields import MAX_WATTS
from wattloop_operator.power_policies import IN_FORCE, applies_to, bounds_of_node, policy_status, selector_of


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
    found = policy_status(policy, nodes, NOW)
    (condition,) = found.conditions
    assert (found.nodes, found.observed_generation) == (nodes, policy.metadata.generation)
    assert (condition.type, condition.status, condition.reason) == (IN_FORCE, status, reason)
    assert condition.message.startswith(message)


def test_an_unchanged_status_is_equal_and_a_change_has_its_time() -> None:
    later = NOW + timedelta(hours=1)
    first = policy_status(POLICY, 2, NOW)
    known = POLICY.model_copy(update={"status": first})
    assert policy_status(known, 2, later) == first
    assert policy_status(known, 3, later).conditions[0].last_transition_time == NOW
    assert policy_status(known, 0, later).conditions[0].last_transition_time == later
