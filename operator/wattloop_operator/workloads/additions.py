"""What Wattloop adds to the pods of one attempt, whatever their workload's kind."""

from __future__ import annotations

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.workloads.ownership import labels_of
from wattloop_operator.workloads.pod_template import Additions
from wattloop_operator.workloads.run_environment import run_environment
from wattloop_operator.workloads.surroundings import ClusterSurroundings


def additions_of(
    job: RecurringTrainingJob, recurrence: TrainingRecurrence, surroundings: ClusterSurroundings, devices: int
) -> Additions:
    """What is added.

    Args:
        job: The job.
        recurrence: The attempt's decision.
        surroundings: What pods are told.
        devices: GPUs of all pods together, which share the batch.
    """
    environment = run_environment(job, recurrence, surroundings.in_pod(), devices)
    return Additions(
        labels=labels_of(recurrence, job.spec.template.labels),
        variables=environment.variables(),
        certificate_authority=surroundings.certificate_authority,
        reports=bool(surroundings.report_url),
        agent_folder=surroundings.agent_folder,
    )
