"""What a policy's status says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from wattloop_operator.api.conditions import ConditionStatus
from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy
from wattloop_operator.policies.status import IN_FORCE, policy_status

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
POLICY = GPUPowerPolicy.from_wire(
    {"metadata": {"name": "fleet", "generation": 3}, "spec": {"nodeSelector": {"pool": "a100"}}}
)
EVERYWHERE = GPUPowerPolicy.from_wire({"metadata": {"name": "all", "generation": 1}, "spec": {}})


@pytest.mark.parametrize(
    ("policy", "nodes", "status", "reason", "message"),
    [
        (POLICY, 1, ConditionStatus.TRUE, "NodesSelected", "It holds on 1 node;"),
        (POLICY, 12, ConditionStatus.TRUE, "NodesSelected", "It holds on 12 nodes;"),
        (POLICY, 0, ConditionStatus.FALSE, "NoNodes", "No node has the labels pool=a100;"),
        (EVERYWHERE, 0, ConditionStatus.FALSE, "NoNodes", "The cluster has no node."),
    ],
)
def test_it_says_on_how_many_nodes_the_policy_holds(
    policy: GPUPowerPolicy, nodes: int, status: ConditionStatus, reason: str, message: str
) -> None:
    found = policy_status(policy, nodes, NOW)
    (condition,) = found.conditions
    assert (found.nodes, found.observed_generation) == (nodes, policy.metadata.generation)
    assert (condition.type, condition.status, condition.reason) == (IN_FORCE, status, reason)
    assert condition.message.startswith(message)


def test_the_same_standing_again_is_no_news_and_a_change_has_its_time() -> None:
    later = NOW + timedelta(hours=1)
    first = policy_status(POLICY, 2, NOW)
    known = POLICY.model_copy(update={"status": first})
    assert policy_status(known, 2, later) == first
    assert policy_status(known, 3, later).conditions[0].last_transition_time == NOW
    assert policy_status(known, 0, later).conditions[0].last_transition_time == later
