"""Orders power limits for pods whose trainings cannot request them, in the answers to their nodes' agents."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop.wire.node_energy import PodLimit, PodLimitState
from wattloop_operator.api.power_fields import PowerLimit
from wattloop_operator.reconcile.attempt.ordered_limit import needs_order, ordered_limit
from wattloop_operator.reporting.interfaces import (
    PodAttempt,
    ProgressTooLargeError,
    TooManyRequestsError,
    UnknownRecurrenceError,
)
from wattloop_operator.reporting.rate_limiters import Rate, TokenBuckets
from wattloop_operator.reporting.service import ReportService

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 20_000
# An attempt that needs no order now is read again after this time: its process may stop reporting GPUs.
CACHE_SECONDS = 60.0
MAX_LOGGED_ATTEMPTS = 1_000

PowerOfJob = Callable[[str, str], PowerLimit | None]
"""How a job chooses its power limit, by namespace and name; None if the job does not exist. It raises OperationError
if the job cannot be read now."""


class LimitOrders:
    """Its `order` is the `OrderLimit` of the nodes' reports. Thread-safe.

    No failure is raised: the agent's energy is stored already, and the next report gets an order.

    Args:
        reports: Merges what agents did, and reads attempts.
        power_of: How a job chooses its power limit.
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
            return self._order(attempt, pod_uid, state)
        except UnknownRecurrenceError:
            return None
        except (OperationError, ProgressTooLargeError, TooManyRequestsError) as error:
            name = "/".join(key)
            if self._log_limit.take(name):
                logger.warning("%s: no power limit can be ordered now: %s", name, error)
            return None

    def _order(self, attempt: PodAttempt, pod_uid: str, state: PodLimitState | None) -> PodLimit | None:
        recurrence = self._reports.receive_limit(attempt.namespace, attempt.name, state)
        if not needs_order(recurrence, may_have_socket=self._sockets):
            # An attempt that has reported nothing may need an order with its first report.
            if recurrence.status.progress is not None:
                with self._lock:
                    self._without_order[attempt.namespace, attempt.name] = True
            return None
        power = self._power_of(attempt.namespace, attempt.job) if recurrence.spec.profile_power_limits else None
        watts = ordered_limit(recurrence, power or PowerLimit())
        return PodLimit(pod_uid, None if watts is None else float(watts))
