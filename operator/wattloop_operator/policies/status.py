"""What a policy's status says: on how many nodes it holds, and what is wrong with it."""

from __future__ import annotations

from datetime import datetime

from wattloop_operator.api.conditions import Condition, ConditionStatus
from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy, GPUPowerPolicyStatus
from wattloop_operator.policies.bounds import selector_of

IN_FORCE = "InForce"


def policy_status(policy: GPUPowerPolicy, nodes: int, now: datetime) -> GPUPowerPolicyStatus:
    """The status of a policy.

    Args:
        policy: As it is now.
        nodes: How many nodes it selects.
        now: The time, with a time zone.
    """
    if nodes:
        status, reason = ConditionStatus.TRUE, "NodesSelected"
        message = (
            f"It holds on {nodes} {'node' if nodes == 1 else 'nodes'}; their agents are told with their next report."
        )
    else:
        status, reason = ConditionStatus.FALSE, "NoNodes"
        chosen = selector_of(policy)
        message = f"No node has the labels {chosen}; correct spec.nodeSelector or label the nodes."
        if not chosen:
            message = "The cluster has no node."
    before = next((each for each in policy.status.conditions if each.type == IN_FORCE), None)
    since = before.last_transition_time if before is not None and before.status is status else now
    condition = Condition(
        type=IN_FORCE,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=policy.metadata.generation,
    )
    return GPUPowerPolicyStatus(observed_generation=policy.metadata.generation, conditions=(condition,), nodes=nodes)
