"""Wattloop's objects for the reporting API, which every replica serves without a watch: recurrences and their jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakValueDictionary

from cachetools import TTLCache, cached
from pydantic import ValidationError

from wattloop.errors import OperationError
from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.power_fields import Power
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    FREQUENCY_PLANS,
    RECURRING_TRAINING_JOBS,
    TRAINING_RECURRENCES,
    ClusterApi,
    RejectedError,
)
from wattloop_operator.domain.job_identity import history_uid
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.pipeline.job_plan import job_plan
from wattloop_operator.reconcile.pipeline.pipeline_state import GivenPlan, JobPlan

MAX_JOBS = 10_000
# After a change of a job's selector, its running attempts hold the limit of the former for so long.
CACHE_SECONDS = 30.0


class ReportedObjects:
    """Finds the objects that reports are about, which every replica receives, whether it leads or not.

    Args:
        api: The API server.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def recurrence(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """See `wattloop_operator.reporting.progress_writer.FindRecurrence`."""
        try:
            body = self._api.find(TRAINING_RECURRENCES, namespace, name)
        except RejectedError as error:
            raise OperationError(f"{namespace}/{name} cannot be read: {error}") from error
        return None if body is None else TrainingRecurrence.from_wire(body)


class JobSettings:
    """Reads how jobs choose power limits and plan pipelines. Thread-safe.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        cache: TTLCache[tuple[str, str], Power | None] = TTLCache(MAX_JOBS, CACHE_SECONDS, clock)
        # Whatever refers to a plan of the user refers to one object.
        self._plans: WeakValueDictionary[tuple[str, str], GivenPlan] = WeakValueDictionary()
        self._plans_lock = threading.Lock()
        self._power_of = cached(cache, lock=threading.Lock())(self._read_power)

    def power_of(self, namespace: str, name: str) -> Power | None:
        """See `wattloop_operator.reporting.nodes.PowerOfJob`."""
        return self._power_of(namespace, name)

    def plan_of(self, recurrence: TrainingAttempt) -> JobPlan:
        """See `wattloop_operator.reporting.pipeline_service.PlanOfRecurrence`."""
        namespace, reference = recurrence.metadata.namespace, recurrence.spec.job_ref
        try:
            body = self._api.find(RECURRING_TRAINING_JOBS, namespace, reference.name)
            job = None if body is None else RecurringTrainingJob.from_wire(body)
            if job is None or history_uid(job) != reference.uid:
                return JobPlan(enabled=False)
            named = job.spec.power.named_plan
            found = None if named is None else self._api.find(FREQUENCY_PLANS, namespace, named)
            return self._shared(job_plan(job, recurrence, None if found is None else FrequencyPlan.from_wire(found)))
        except (RejectedError, ValidationError) as error:
            name = f"{namespace}/{reference.name}"
            raise OperationError(f"the frequency plan of {name} cannot be read: {error}") from error

    def _shared(self, plan: JobPlan) -> JobPlan:
        given = plan.given
        if given is None or given.spec is None:
            return plan
        with self._plans_lock:
            return replace(plan, given=self._plans.setdefault((given.name, given.digest), given))

    def _read_power(self, namespace: str, name: str) -> Power | None:
        try:
            body = self._api.find(RECURRING_TRAINING_JOBS, namespace, name)
            return None if body is None else RecurringTrainingJob.from_wire(body).spec.power
        except (RejectedError, ValidationError) as error:
            raise OperationError(f"RecurringTrainingJob {namespace}/{name} cannot be read: {error}") from error
