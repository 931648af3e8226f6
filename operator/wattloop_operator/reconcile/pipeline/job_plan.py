"""How a job plans its pipelines: whether, by which rule, and whether by a FrequencyPlan of the user."""

from __future__ import annotations

import hashlib
import json

from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.pipeline.pipeline_state import GivenPlan, JobPlan
from wattloop_operator.reconcile.pipeline.point_choice import choice_of_job


def job_plan(job: RecurringTrainingJob, recurrence: TrainingRecurrence, plan: FrequencyPlan | None) -> JobPlan:
    """How a job plans the pipeline of an attempt.

    Args:
        job: The job.
        recurrence: The attempt.
        plan: The FrequencyPlan that the job names; None if it names none, or one that does not exist.
    """
    choice, reference = choice_of_job(job.spec, recurrence), job.spec.power.frequency_plan_ref
    if choice is None or job.spec.mode is Mode.ADVISE:
        return JobPlan(enabled=False)
    if reference is None:
        return JobPlan(choice=choice)
    return JobPlan(choice=choice, given=_given(job.metadata.namespace, reference.name, plan))


def _given(namespace: str, name: str, plan: FrequencyPlan | None) -> GivenPlan:
    if plan is None:
        problem = f"FrequencyPlan {namespace}/{name} does not exist; create it, or leave power.frequencyPlanRef out"
        return GivenPlan(name, digest="missing", problem=problem)
    digest = hashlib.sha256(json.dumps(plan.spec.to_wire(), sort_keys=True).encode()).hexdigest()[:32]
    return GivenPlan(name, digest, plan.spec)
