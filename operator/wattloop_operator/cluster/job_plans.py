"""How jobs plan their pipelines, for the plan service, which every replica runs."""

from __future__ import annotations

from pydantic import ValidationError

from wattloop.errors import OperationError
from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import FREQUENCY_PLANS, RECURRING_TRAINING_JOBS, ClusterApi, RejectedError
from wattloop_operator.reconcile.pipeline.job_plan import JobPlan, job_plan


class JobPlans:
    """Implements `wattloop_operator.reporting.pipeline_service.PlanOfRecurrence`. Thread-safe.

    Args:
        api: The API server.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def __call__(self, recurrence: TrainingRecurrence) -> JobPlan:
        """How the job of a recurrence plans its pipelines.

        Raises:
            OperationError: The job or its plan cannot be read now.
        """
        namespace, reference = recurrence.metadata.namespace, recurrence.spec.job_ref
        try:
            body = self._api.find(RECURRING_TRAINING_JOBS, namespace, reference.name)
            if body is None or body["metadata"]["uid"] != reference.uid:
                return JobPlan(enabled=False)
            job = RecurringTrainingJob.from_wire(body)
            named = job.spec.power.frequency_plan_ref
            found = None if named is None else self._api.find(FREQUENCY_PLANS, namespace, named.name)
            return job_plan(job, recurrence, None if found is None else FrequencyPlan.from_wire(found))
        except (RejectedError, ValidationError) as error:
            name = f"{namespace}/{reference.name}"
            raise OperationError(f"the frequency plan of {name} cannot be read: {error}") from error
