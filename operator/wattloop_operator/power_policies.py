"""Pure functions of GPUPowerPolicies: the bounds of a node, and the status of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from wattloop.wire.node_energy import MAX_CLOCK_MEGAHERTZ, GpuBounds, Range
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_operator.api.gpu_power_policy import ClockRange, GPUPowerPolicy, GPUPowerPolicyStatus
from wattloop_operator.api.meta import Condition, ConditionStatus

IN_FORCE = "InForce"


def applies_to(policy: GPUPowerPolicy, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels has every label that the policy selects by."""
    return all(labels.get(name) == value for name, value in policy.spec.node_selector.items())


def bounds_of_node(policies: Iterable[GPUPowerPolicy], labels: Mapping[str, str]) -> tuple[GpuBounds, ...]:
    """The bounds of a node with these labels, sorted by policy name.

    The agent compares products and namespaces: it knows its GPUs and the calling pods.
    """
    applying = (policy for policy in policies if applies_to(policy, labels))
    return tuple(sorted((_bounds(policy) for policy in applying), key=lambda bounds: bounds.policy))


def selector_of(policy: GPUPowerPolicy) -> str:
    """The label selector of a policy's nodes; empty: all nodes.

    Example:
        >>> from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy
        >>> selector_of(GPUPowerPolicy.from_wire({"spec": {"nodeSelector": {"pool": "a100", "zone": "b"}}}))
        'pool=a100,zone=b'
    """
    return ",".join(f"{name}={value}" for name, value in policy.spec.node_selector.items())


def _bounds(policy: GPUPowerPolicy) -> GpuBounds:
    spec = policy.spec
    watts = spec.power_limit
    return GpuBounds(
        policy=policy.metadata.name,
        # NVML names products in ASCII, so another name matches no GPU. If no name is left, the
        # policy applies to no GPU.
        products=tuple(name for name in spec.gpu_products if name.isascii() and name.isprintable())
        if spec.gpu_products
        else None,
        namespaces=spec.namespaces or None,
        power_limit_watts=None if watts is None else _range(watts.min_watts, watts.max_watts, MAX_LIMIT_WATTS),
        graphics_clock_megahertz=_clocks(spec.graphics_clock),
        memory_clock_megahertz=_clocks(spec.memory_clock),
    )


def _clocks(clocks: ClockRange | None) -> Range | None:
    return None if clocks is None else _range(clocks.min_megahertz, clocks.max_megahertz, MAX_CLOCK_MEGAHERTZ)


def _range(minimum: int | None, maximum: int | None, limit: float) -> Range:
    return float(minimum or 0), limit if maximum is None else float(maximum)


def policy_status(policy: GPUPowerPolicy, nodes: int, now: datetime) -> GPUPowerPolicyStatus:
    """The status of a policy.

    Args:
        policy: The current policy.
        nodes: Number of nodes that it selects.
        now: The time, with a time zone.
    """
    if nodes:
        status, reason = ConditionStatus.TRUE, "NodesSelected"
        message = f"It applies to {nodes} {'node' if nodes == 1 else 'nodes'}; agents get it at their next report."
    else:
        status, reason = ConditionStatus.FALSE, "NoNodes"
        selector = selector_of(policy)
        message = f"No node has the labels {selector}; correct spec.nodeSelector or label the nodes."
        if not selector:
            message = "The cluster has no node."
    before = next((each for each in policy.status.conditions if each.type == IN_FORCE), None)
    since = before.last_transition_time if before is not None and before.status is status else now
    condition = Condition(
        type=IN_FORCE,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
    )
    return GPUPowerPolicyStatus(observed_generation=policy.metadata.generation, conditions=(condition,), nodes=nodes)
