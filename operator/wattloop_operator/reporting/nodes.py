"""Receives the reports of node agents: stores energy, and answers with the node's bounds and power limits.

A power limit is ordered for a pod whose training cannot request one.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime, timedelta

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop.wire.node_energy import MAX_POD_LIMITS, NodeAnswer, NodeReport, PodGpuUsage, PodLimit, PodLimitState
from wattloop_operator.api.power_fields import Power
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.reconcile.attempt.ordered_limit import needs_order, ordered_limit
from wattloop_operator.reporting.interfaces import (
    AttemptsOfPods,
    AuthorizeNode,
    BearerToken,
    BoundsOfNode,
    OrderLimit,
    OwnershipError,
    PodAttempt,
    ProgressTooLargeError,
    TooManyRequestsError,
    UnknownRecurrenceError,
)
from wattloop_operator.reporting.report_limits import Rate, TokenBuckets
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store.pod_energies import PodEnergies

# A pod that was not reported for so long is deleted, and so is its recurrence.
RETENTION = timedelta(days=30)
CLEANUP_INTERVAL = timedelta(hours=1)
# An agent asks the kubelet every two seconds, which takes at most three. A larger difference of the clocks is
# not an age: simulated GPUs have simulated clocks, and the GPU of an ended usage runs on.
MAX_AGE_SECONDS = 5.0
# What a record has of a usage as it was reported.
MEASURED = {each.name for each in fields(PodEnergy)} & {each.name for each in fields(PodGpuUsage)}

logger = logging.getLogger(__name__)


class NodeService:
    """The node agents' part of the reporting API, independent of HTTP.

    Args:
        pods_ended: Called with each job of which the final energy of a pod is stored.
        order_limit: Decides which power limits the agent is to hold.
        gpus_reported: Called with each report that is stored; it does not wait.
    """

    def __init__(
        self,
        authorize_node: AuthorizeNode,
        attempts_of: AttemptsOfPods,
        energies: PodEnergies,
        clock: Callable[[], datetime],
        *,
        bounds: BoundsOfNode = lambda _: None,
        pods_ended: Callable[[JobKey], None] = lambda _: None,
        order_limit: OrderLimit = lambda _, __, ___: None,
        gpus_reported: Callable[[NodeReport], None] = lambda _: None,
    ) -> None:
        self._authorize_node = authorize_node
        self._attempts_of = attempts_of
        self._energies = energies
        self._clock = clock
        self._bounds = bounds
        self._pods_ended = pods_ended
        self._order_limit = order_limit
        self._gpus_reported = gpus_reported
        self._cleaned_up_at: datetime | None = None

    def authorize(self, token: BearerToken, node: str, address: str = "") -> None:
        """Check that the caller is the agent of a node, before its report is read; see `AuthorizeNode`."""
        try:
            self._authorize_node(token, node, address)
        except OwnershipError as error:
            logger.warning("rejected a report of node %s: %s", node, error)
            raise

    def receive(self, node: str, report: NodeReport) -> NodeAnswer:
        """Store a report of an authorized caller, durably when this returns.

        Raises:
            OwnershipError: The report is of another node than the caller's, or has a pod that is on another node;
                nothing of it is stored.
            TooManyRequestsError: The node had too many pods that are not known.
            OperationError: The write failed for now; the report may be sent again.
        """
        if report.node != node:
            raise OwnershipError(f"node: found {report.node}, expected {node} as in the path")
        known = self._attempts(report)
        self._energies.record(self._energies_of(report, known))
        self._gpus_reported(report)
        now = self._clock()
        if self._cleaned_up_at is None or now - self._cleaned_up_at >= CLEANUP_INTERVAL:
            self._cleaned_up_at = now
            self._energies.delete_before(now - RETENTION)
            self._energies.delete_surplus()
        active = {usage.pod_uid for usage in report.usages if not usage.ended}
        acknowledged = tuple(dict.fromkeys(each.pod_uid for each in report.usages if each.pod_uid not in active))
        ended = (known[pod_uid] for pod_uid in acknowledged if pod_uid in known)
        for key in {JobKey(attempt.namespace, attempt.job) for attempt in ended if attempt.job}:
            self._pods_ended(key)
        return NodeAnswer(acknowledged, self._bounds(node), self._orders(report, known, sorted(active)))

    def _orders(self, report: NodeReport, known: dict[str, PodAttempt], active: Sequence[str]) -> tuple[PodLimit, ...]:
        states = {state.pod_uid: state for state in report.limits}
        orders = (
            self._order_limit(known[pod_uid], pod_uid, states.get(pod_uid))
            for pod_uid in active
            if pod_uid in known and known[pod_uid].name
        )
        return tuple(itertools.islice((order for order in orders if order is not None), MAX_POD_LIMITS))

    def _attempts(self, report: NodeReport) -> dict[str, PodAttempt]:
        pods = {usage.pod_uid: usage for usage in report.usages}
        known = self._attempts_of(report.node, tuple(pods.values()))
        if len(known) < len(pods):
            unknown = {uid: each for uid, each in pods.items() if uid not in known}
            before = self._energies.attempts_of(report.node, report.ledger, tuple(unknown))
            known |= {
                pod_uid: PodAttempt(unknown[pod_uid].namespace, "", "", job_uid, recurrence, attempt)
                for pod_uid, (job_uid, recurrence, attempt) in before.items()
            }
        return known

    def _energies_of(self, report: NodeReport, known: dict[str, PodAttempt]) -> Iterator[PodEnergy]:
        gpus = {gpu.uuid: gpu for gpu in report.gpus}
        now = self._clock()
        for usage in report.usages:
            attempt = known.get(usage.pod_uid)
            gpu = gpus.get(usage.gpu)
            if attempt is not None:
                age = 0.0 if gpu is None else gpu.time_seconds - usage.time_seconds
                yield PodEnergy(
                    job_uid=attempt.job_uid,
                    recurrence=attempt.recurrence,
                    attempt=attempt.attempt,
                    node=report.node,
                    ledger=report.ledger,
                    gpu_uuid=usage.gpu,
                    gpu_product="" if gpu is None else gpu.product,
                    reported_at=now,
                    measured_at=now - timedelta(seconds=min(max(age, 0.0), MAX_AGE_SECONDS)),
                    max_power_limit_watts=None if gpu is None else gpu.max_power_limit_watts or None,
                    **{name: getattr(usage, name) for name in MEASURED},
                )


MAX_ATTEMPTS = 20_000
# An attempt that needs no order now is read again after this time: its process may stop reporting GPUs.
CACHE_SECONDS = 60.0
MAX_LOGGED_ATTEMPTS = 1_000

PowerOfJob = Callable[[str, str], Power | None]
"""How a job chooses its power limit, by namespace and name; None if the job does not exist. It raises OperationError
if the job cannot be read now."""


class LimitOrders:
    """Its `order` is the `OrderLimit` of the nodes' reports. Thread-safe.

    No failure is raised: the agent's energy is stored already, and the next report gets an order.

    Args:
        reports: Merges what agents did, and reads attempts.
        clock: Monotonic seconds.
        sockets: Whether training pods get the agent's socket.
    """

    def __init__(
        self, reports: ReportService, power_of: PowerOfJob, clock: Callable[[], float], *, sockets: bool
    ) -> None:
        self._reports = reports
        self._power_of = power_of
        self._sockets = sockets
        self._lock = threading.Lock()
        self._without_order: TTLCache[tuple[str, str], bool] = TTLCache(MAX_ATTEMPTS, CACHE_SECONDS, clock)
        self._log_limit: TokenBuckets[str] = TokenBuckets(Rate(1 / 3600, 1.0), clock, MAX_LOGGED_ATTEMPTS)

    def order(self, attempt: PodAttempt, pod_uid: str, state: PodLimitState | None) -> PodLimit | None:
        """The order for a pod of an attempt; None: its processes request limits themselves, or none is decided."""
        key = attempt.namespace, attempt.name
        with self._lock:
            if key in self._without_order:
                return None
        try:
            recurrence = self._reports.receive_limit(attempt.namespace, attempt.name, state)
            if not needs_order(recurrence, may_have_socket=self._sockets):
                # An attempt that has reported nothing may need an order with its first report.
                if recurrence.progress_version:
                    with self._lock:
                        self._without_order[attempt.namespace, attempt.name] = True
                return None
            power = self._power_of(attempt.namespace, attempt.job) if recurrence.spec.profile_power_limits else None
            watts = ordered_limit(recurrence, power or Power())
            return PodLimit(pod_uid, None if watts is None else float(watts))
        except UnknownRecurrenceError:
            return None
        except (OperationError, ProgressTooLargeError, TooManyRequestsError) as error:
            name = "/".join(key)
            if self._log_limit.take(name):
                logger.warning("%s: no power limit can be ordered now: %s", name, error)
            return None
