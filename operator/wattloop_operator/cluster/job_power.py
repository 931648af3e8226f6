"""How jobs choose their power limits, for answers to node agents, which every replica gives."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cachetools import TTLCache, cached
from pydantic import ValidationError

from wattloop.errors import OperationError
from wattloop_operator.api.power_fields import PowerLimit
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi, RejectedError

MAX_JOBS = 10_000
# After a change of a job's selector, its running attempts hold the limit of the former for so long.
CACHE_SECONDS = 30.0


class JobPower:
    """Implements `wattloop_operator.reporting.limit_orders.PowerOfJob`. Thread-safe.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        cache: TTLCache[tuple[str, str], PowerLimit | None] = TTLCache(MAX_JOBS, CACHE_SECONDS, clock)
        self._cached = cached(cache, lock=threading.Lock())(self._read)

    def __call__(self, namespace: str, name: str) -> PowerLimit | None:
        """How a job chooses its power limit; None if it does not exist.

        Raises:
            OperationError: The job cannot be read now.
        """
        return self._cached(namespace, name)

    def _read(self, namespace: str, name: str) -> PowerLimit | None:
        try:
            body = self._api.find(RECURRING_TRAINING_JOBS, namespace, name)
            return None if body is None else RecurringTrainingJob.from_wire(body).spec.power.limit
        except (RejectedError, ValidationError) as error:
            raise OperationError(f"RecurringTrainingJob {namespace}/{name} cannot be read: {error}") from error
