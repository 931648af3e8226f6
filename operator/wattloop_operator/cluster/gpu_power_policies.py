"""GPUPowerPolicies at the API server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime

from pydantic import ValidationError

from wattloop.errors import OperationError
from wattloop.node_energy import MAX_BOUNDS, GpuBounds
from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy, GPUPowerPolicyStatus
from wattloop_operator.cluster.api import (
    GPU_POWER_POLICIES,
    NODES,
    Body,
    ClusterApi,
    ConflictError,
    NotFoundError,
    RejectedError,
    status_to_apply,
)
from wattloop_operator.cluster.timed_cache import TimedCache
from wattloop_operator.policies import bounds_of_node, policy_status, selector_of

POLICIES_AGE_SECONDS = 5.0
LABELS_AGE_SECONDS = 60.0
MAX_NODES = 20_000

logger = logging.getLogger(__name__)


class UnreadablePolicyError(Exception):
    """A policy is not of the form that this version knows; a guard rail that is passed over would be none."""


class _TooManyError(Exception):
    """More policies hold on a node than its agent can be told."""


class NodePolicies:
    """Implements `wattloop_operator.reporting.interfaces.BoundsOfNode`. Safe to use from several threads.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._policies: tuple[GPUPowerPolicy, ...] | Exception = ()
        self._looked_at: float | None = None
        self._labels: TimedCache[str, Mapping[str, str]] = TimedCache(clock, seconds=LABELS_AGE_SECONDS, most=MAX_NODES)
        self._trouble: dict[str, str] = {}

    def bounds_for_node(self, node: str) -> tuple[GpuBounds, ...] | None:
        """The guard rails that hold on a node; None: they are not known now, and those told last stay."""
        try:
            bounds = bounds_of_node(self._policies_now(), self._labels_now(node))
            if len(bounds) > MAX_BOUNDS:
                raise _TooManyError(f"{len(bounds)} hold on it, an agent can be told {MAX_BOUNDS}; merge some")  # noqa: TRY301
        except NotFoundError:
            self._tell(node, "the cluster has no such node")
            return None
        except (OperationError, RejectedError, UnreadablePolicyError, _TooManyError) as error:
            self._tell(node, str(error))
            return None
        self._trouble.pop(node, None)
        return bounds

    def _policies_now(self) -> tuple[GPUPowerPolicy, ...]:
        with self._lock:
            if self._looked_at is None or self._clock() - self._looked_at >= POLICIES_AGE_SECONDS:
                try:
                    self._policies = policies(self._api)
                except (OperationError, RejectedError, UnreadablePolicyError) as error:
                    # Kept for as long as policies are: agents that report at once don't each wait for a dead server.
                    self._policies = error
                self._looked_at = self._clock()
            if isinstance(self._policies, Exception):
                raise self._policies
            return self._policies

    def _labels_now(self, node: str) -> Mapping[str, str]:
        labels = self._labels.get(node)
        if labels is None:
            labels = self._api.get(NODES, "", node)["metadata"].get("labels") or {}
            self._labels.keep(node, labels)
        return labels

    def _tell(self, node: str, trouble: str) -> None:
        # Agents ask every few seconds; one line says it until it changes.
        if self._trouble.get(node) != trouble:
            logger.error(
                "node %s: its GPUPowerPolicies are not known, its agent keeps those told last: %s", node, trouble
            )
        self._trouble[node] = trouble


def policies(api: ClusterApi) -> tuple[GPUPowerPolicy, ...]:
    """All policies of the cluster; none where it does not know their kind.

    Raises:
        OperationError: The API server could not be asked now.
        RejectedError: It refuses.
        UnreadablePolicyError: One is not of the form that this version knows.
    """
    try:
        bodies, _ = api.list(GPU_POWER_POLICIES)
    except NotFoundError:
        return ()
    return tuple(_policy(body) for body in bodies)


def _policy(body: Body) -> GPUPowerPolicy:
    try:
        return GPUPowerPolicy.from_wire(body)
    except ValidationError as error:
        raise UnreadablePolicyError(f"GPUPowerPolicy {body['metadata']['name']}: {error}") from error


def write_policy_statuses(api: ClusterApi, clock: Callable[[], datetime]) -> int:
    """Bring every policy's status up to date; returns how many were written.

    Raises:
        OperationError: The API server could not be asked now.
        RejectedError: It refuses.
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
    try:
        api.apply_status(GPU_POWER_POLICIES, status_to_apply(policy, status.to_wire()))
    except (NotFoundError, ConflictError):
        # Gone meanwhile.
        return 0
    return 1
