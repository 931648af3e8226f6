"""Taking in what a node's agent says: keep what pods of ours used, answer what it may forget and what it must obey."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from wattloop.node_energy import NodeAnswer, NodeReport, PodGpuUsage
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.reporting.interfaces import (
    BearerToken,
    BoundsOfNode,
    EnergyStore,
    NodeAuthorizer,
    NodeOwnershipError,
    NodePods,
    PodAttempt,
)

# A pod of which nothing was heard for so long has gone, and its recurrence too.
KEPT_FOR = timedelta(days=30)
SWEPT_EVERY = timedelta(hours=1)

logger = logging.getLogger(__name__)


def no_bounds_known(_node: str) -> None:
    """Stands where nobody knows the guard rails of nodes: agents keep those that they have."""


class NodeService:
    """The agents' side of the reporting API, apart from its transport.

    Args:
        authorizer: Who may speak of which node.
        pods: What the nodes' pods run.
        energies: Where it is kept.
        clock: The time, with a time zone.
        bounds: The guard rails of a node.
        pods_ended: Told of each job of which a pod's last word has been kept.
    """

    def __init__(
        self,
        authorizer: NodeAuthorizer,
        pods: NodePods,
        energies: EnergyStore,
        clock: Callable[[], datetime],
        *,
        bounds: BoundsOfNode = no_bounds_known,
        pods_ended: Callable[[JobKey], None] = lambda _: None,
    ) -> None:
        self._authorizer = authorizer
        self._pods = pods
        self._energies = energies
        self._clock = clock
        self._bounds = bounds
        self._pods_ended = pods_ended
        self._swept_at: datetime | None = None

    def authorize(self, token: BearerToken, node: str, address: str = "") -> None:
        """Let an agent pass, before its report is read.

        Raises:
            UnknownCallerError: The token says nothing that can be trusted.
            TooManyRequestsError: Too many unknown tokens were checked a moment ago.
            NodeOwnershipError: The caller is no agent, or one of another node.
            OperationError: It could not be found out now.
        """
        try:
            self._authorizer.authorize(token, node, address)
        except NodeOwnershipError as refusal:
            logger.warning("a report of node %s is refused: %s", node, refusal)
            raise

    def take(self, node: str, report: NodeReport) -> NodeAnswer:
        """Take in a report of a caller that was let pass; when this returns, it is kept.

        Raises:
            NodeOwnershipError: The report is of another node than the caller's.
            PodOwnershipError: It tells of a pod that is on another node; nothing of it is kept.
            OperationError: It could not be kept now; the report may be sent again.
        """
        if report.node != node:
            raise NodeOwnershipError(f"node: found {report.node}, expected {node}, which the address names")
        known = self._attempts(report)
        self._energies.record(self._energies_of(report, known))
        self._sweep()
        going_on = {usage.pod_uid for usage in report.usages if not usage.ended}
        acknowledged = tuple(dict.fromkeys(each.pod_uid for each in report.usages if each.pod_uid not in going_on))
        ended = (known[pod_uid] for pod_uid in acknowledged if pod_uid in known)
        for key in {JobKey(attempt.namespace, attempt.job) for attempt in ended if attempt.job}:
            self._pods_ended(key)
        return NodeAnswer(acknowledged, self._bounds(node))

    def _sweep(self) -> None:
        now = self._clock()
        if self._swept_at is None or now - self._swept_at >= SWEPT_EVERY:
            self._swept_at = now
            self._energies.forget_before(now - KEPT_FOR)

    def _attempts(self, report: NodeReport) -> dict[str, PodAttempt]:
        """By pod uid, what runs in those that are ours."""
        pods = {usage.pod_uid: usage for usage in report.usages}
        found = {pod_uid: self._pods.attempt_of(report.node, usage) for pod_uid, usage in pods.items()}
        known = {pod_uid: attempt for pod_uid, attempt in found.items() if attempt is not None}
        if len(known) < len(pods):
            known |= self._known_before(report, {uid: each for uid, each in pods.items() if uid not in known})
        return known

    def _known_before(self, report: NodeReport, gone: dict[str, PodGpuUsage]) -> dict[str, PodAttempt]:
        """Pods that the API server knows no more may have been told of while they were there."""
        before = self._energies.attempts_of(report.node, report.ledger, tuple(gone))
        return {
            pod_uid: PodAttempt(gone[pod_uid].namespace, "", job_uid, recurrence, attempt)
            for pod_uid, (job_uid, recurrence, attempt) in before.items()
        }

    def _energies_of(self, report: NodeReport, known: dict[str, PodAttempt]) -> Iterator[PodEnergy]:
        products = {gpu.uuid: gpu.product for gpu in report.gpus}
        now = self._clock()
        for usage in report.usages:
            attempt = known.get(usage.pod_uid)
            if attempt is not None:
                yield PodEnergy(
                    job_uid=attempt.job_uid,
                    recurrence=attempt.recurrence,
                    attempt=attempt.attempt,
                    node=report.node,
                    ledger=report.ledger,
                    pod_uid=usage.pod_uid,
                    pod=usage.pod,
                    container=usage.container,
                    gpu_uuid=usage.gpu,
                    gpu_product=products.get(usage.gpu, ""),
                    shared=usage.shared,
                    energy_millijoules=usage.energy_millijoules,
                    uncertainty_millijoules=usage.uncertainty_millijoules,
                    start_time_seconds=usage.start_time_seconds,
                    time_seconds=usage.time_seconds,
                    ended=usage.ended,
                    reported_at=now,
                )
