"""GPUPowerPolicies at the API server: the bounds of a node for its agent, and the policies' statuses.

Every replica answers agents, also one that does not lead and so watches nothing. Policies and node labels are read when
an agent reports and cached briefly; an agent gets a changed policy with the first response after that. The leader
writes the statuses of the policies in its cache.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from cachetools import TTLCache, cached
from pydantic import ValidationError

from wattloop.errors import OperationError
from wattloop.wire.node_energy import MAX_BOUNDS, MAX_CLOCK_MEGAHERTZ, GpuBounds, Range
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_operator.api.gpu_power_policy import ClockRange, GPUPowerPolicy, GPUPowerPolicyStatus
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.cluster.api import (
    GPU_POWER_POLICIES,
    NODES,
    ClusterApi,
    ConflictError,
    NotFoundError,
    RejectedError,
    status_to_apply,
)
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.problem_log import ProblemLog

POLICIES_SECONDS = 5.0
LABELS_SECONDS = 60.0
MAX_NODES = 20_000

logger = logging.getLogger(__name__)


class UnreadablePolicyError(Exception):
    """This version of Wattloop cannot parse a policy; ignoring it would lift its bounds."""


class _TooManyPoliciesError(Exception):
    """More policies apply to a node than a response to its agent can contain."""


class NodePolicies:
    """Implements `wattloop_operator.reporting.interfaces.BoundsOfNode`. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._policies: tuple[GPUPowerPolicy, ...] | Exception = ()
        self._read_at: float | None = None
        labels: TTLCache[str, Mapping[str, str]] = TTLCache(MAX_NODES, LABELS_SECONDS, clock)
        self._labels_of = cached(labels, key=str, lock=threading.Lock())(
            lambda node: api.get(NODES, "", node)["metadata"].get("labels") or {}
        )
        # Agents report every few seconds.
        self._problems = ProblemLog(logger, logging.ERROR)

    def bounds_for_node(self, node: str) -> tuple[GpuBounds, ...] | None:
        """The bounds that apply to a node; None if they are not known now, and the agent keeps its bounds."""
        try:
            bounds = bounds_of_node(self._current_policies(), self._labels_of(node))
            if len(bounds) > MAX_BOUNDS:
                raise _TooManyPoliciesError(  # noqa: TRY301
                    f"{len(bounds)} apply, an agent accepts {MAX_BOUNDS}; merge some"
                )
        except NotFoundError:
            self._problems.met(_subject(node), "the cluster has no such node")
            return None
        except (OperationError, RejectedError, UnreadablePolicyError, _TooManyPoliciesError) as error:
            self._problems.met(_subject(node), str(error))
            return None
        self._problems.ended(_subject(node))
        return bounds

    def _current_policies(self) -> tuple[GPUPowerPolicy, ...]:
        with self._lock:
            if self._read_at is None or self._clock() - self._read_at >= POLICIES_SECONDS:
                try:
                    self._policies = list_policies(self._api)
                except (OperationError, RejectedError, UnreadablePolicyError) as error:
                    # Cached like policies, so that concurrent agents do not each wait for a dead
                    # server.
                    self._policies = error
                self._read_at = self._clock()
            if isinstance(self._policies, Exception):
                raise self._policies
            return self._policies


def _subject(node: str) -> str:
    return f"node {node}: its GPUPowerPolicies are not known, its agent keeps its bounds"


def list_policies(api: ClusterApi) -> tuple[GPUPowerPolicy, ...]:
    """All policies of the cluster; none if it does not know their kind.

    Raises:
        OperationError: The API server does not answer now.
        RejectedError: The API server rejects the request.
        UnreadablePolicyError: This version of Wattloop cannot parse a policy.
    """
    try:
        bodies, _ = api.list(GPU_POWER_POLICIES)
    except NotFoundError:
        return ()
    policies = []
    for body in bodies:
        try:
            policies.append(GPUPowerPolicy.from_wire(body))
        except ValidationError as error:
            raise UnreadablePolicyError(f"GPUPowerPolicy {body['metadata']['name']}: {error}") from error
    return tuple(policies)


def write_policy_statuses(api: ClusterApi, cache: ObjectCache, clock: Callable[[], datetime]) -> int:
    """Bring every policy's status up to date; returns the number of written statuses. The leader calls it.

    Raises:
        OperationError: The API server does not answer now.
        RejectedError: The API server rejects the request.
    """
    written = 0
    counts: dict[str, int] = {}
    for cached_policy in cache.policies.all():
        policy = cached_policy.value
        selector = selector_of(policy)
        if selector not in counts:
            counts[selector] = len(api.list(NODES, labels=selector, metadata_only=True)[0])
        status = gpu_power_policy_status(policy, counts[selector], clock())
        if status == policy.status:
            continue
        # It may be deleted meanwhile.
        with contextlib.suppress(NotFoundError, ConflictError):
            cache.put_policy(api.apply_status(GPU_POWER_POLICIES, status_to_apply(policy, status.to_wire())))
            written += 1
    return written


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


def gpu_power_policy_status(policy: GPUPowerPolicy, nodes: int, now: datetime) -> GPUPowerPolicyStatus:
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
    condition = Condition(type=IN_FORCE, status=status, reason=reason, message=message, last_transition_time=since)
    return GPUPowerPolicyStatus(observed_generation=policy.metadata.generation, conditions=(condition,), nodes=nodes)
