"""GPUPowerPolicies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from wattloop.messages import MAX_LIMIT_WATTS
from wattloop.node_energy import MAX_CLOCK_MEGAHERTZ, GpuBounds, Range
from wattloop_operator.api.gpu_power_policy import ClockRange, GPUPowerPolicy, GPUPowerPolicyStatus
from wattloop_operator.api.meta import Condition, ConditionStatus


def holds_on(policy: GPUPowerPolicy, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels has every label that the policy selects by."""
    return all(labels.get(name) == value for name, value in policy.spec.node_selector.items())


def bounds_of_node(policies: Iterable[GPUPowerPolicy], labels: Mapping[str, str]) -> tuple[GpuBounds, ...]:
    """The guard rails of a node with these labels, by the policies' names.

    Products and namespaces are for the agent to compare: it knows its GPUs and who asks.
    """
    holding = (policy for policy in policies if holds_on(policy, labels))
    return tuple(sorted((_bounds(policy) for policy in holding), key=lambda bounds: bounds.policy))


def selector_of(policy: GPUPowerPolicy) -> str:
    """The nodes that it holds for, as a label selector; empty: all.

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
        # NVML names products in ASCII: a name that is none is no GPU's. Where no other is left, it
        # holds for no GPU.
        products=tuple(name for name in spec.gpu_products if name.isascii() and name.isprintable())
        if spec.gpu_products
        else None,
        namespaces=spec.namespaces or None,
        power_limit_watts=None if watts is None else _ends(watts.min_watts, watts.max_watts, MAX_LIMIT_WATTS),
        graphics_clock_megahertz=_clocks(spec.graphics_clock),
        memory_clock_megahertz=_clocks(spec.memory_clock),
    )


def _clocks(clocks: ClockRange | None) -> Range | None:
    return None if clocks is None else _ends(clocks.min_megahertz, clocks.max_megahertz, MAX_CLOCK_MEGAHERTZ)


def _ends(least: int | None, most: int | None, largest: float) -> Range:
    return float(least or 0), largest if most is None else float(most)


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
    )
    return GPUPowerPolicyStatus(observed_generation=policy.metadata.generation, conditions=(condition,), nodes=nodes)
