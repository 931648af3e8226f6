"""How jobs choose power limits and plans, for answers to node agents and ranks, which every replica gives."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cachetools import TTLCache, cached
from pydantic import ValidationError

from wattloop.errors import OperationError
from wattloop_operator.api.power import PowerLimit
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob, RecurringTrainingJobSpec
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi, RejectedError
from wattloop_operator.reconcile.pipeline.choice import choice_of_job
from wattloop_operator.reconcile.pipeline.state import PlanChoice

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
        cache: TTLCache[tuple[str, str], RecurringTrainingJobSpec | None] = TTLCache(MAX_JOBS, CACHE_SECONDS, clock)
        self._cached = cached(cache, lock=threading.Lock())(self._read)

    def __call__(self, namespace: str, name: str) -> PowerLimit | None:
        """How a job chooses its power limit; None if it does not exist.

        Raises:
            OperationError: The job cannot be read now.
        """
        spec = self._cached(namespace, name)
        return None if spec is None else spec.power.limit

    def choice_of(self, recurrence: TrainingRecurrence) -> PlanChoice | None:
        """By which rule the pipelines of a recurrence's job choose their plan; None if they get no clocks.

        Raises:
            OperationError: The job cannot be read now.
        """
        spec = self._cached(recurrence.metadata.namespace, recurrence.spec.job_ref.name)
        return None if spec is None else choice_of_job(spec, recurrence)

    def _read(self, namespace: str, name: str) -> RecurringTrainingJobSpec | None:
        try:
            body = self._api.find(RECURRING_TRAINING_JOBS, namespace, name)
            return None if body is None else RecurringTrainingJob.from_wire(body).spec
        except (RejectedError, ValidationError) as error:
            raise OperationError(f"RecurringTrainingJob {namespace}/{name} cannot be read: {error}") from error
