"""Writes on how many nodes each policy holds into its status; the leading operator does, once in a while."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy, GPUPowerPolicyStatus
from wattloop_operator.cluster.api import ClusterApi, ConflictError, MissingError
from wattloop_operator.cluster.node_policies import policies
from wattloop_operator.cluster.resources import GPU_POWER_POLICIES, NODES
from wattloop_operator.policies.bounds import selector_of
from wattloop_operator.policies.status import policy_status


def write_policy_statuses(api: ClusterApi, clock: Callable[[], datetime]) -> int:
    """Bring every policy's status up to date; returns how many were written.

    Raises:
        OperationError: The API server could not be asked now.
        RefusedError: It refuses.
        UnreadablePolicyError: A policy is not of the form that this version knows.
    """
    written = 0
    counts: dict[str, int] = {}
    for policy in policies(api):
        selector = selector_of(policy)
        if selector not in counts:
            counts[selector] = len(api.list(NODES, labels=selector, metadata_only=True)[0])
        status = policy_status(policy, counts[selector], clock())
        if status != policy.status:
            written += _write(api, policy, status)
    return written


def _write(api: ClusterApi, policy: GPUPowerPolicy, status: GPUPowerPolicyStatus) -> int:
    body = {
        "apiVersion": policy.api_version,
        "kind": policy.kind,
        # A policy of the same name that was made since is another one.
        "metadata": {"name": policy.metadata.name, "uid": policy.metadata.uid},
        "status": status.to_wire(),
    }
    try:
        api.apply_status(GPU_POWER_POLICIES, body)
    except (MissingError, ConflictError):
        # Gone meanwhile.
        return 0
    return 1
