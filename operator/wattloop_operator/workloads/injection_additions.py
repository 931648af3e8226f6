"""What Wattloop adds to the pods of one attempt, whatever their workload's kind."""

from __future__ import annotations

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.workloads.cluster_injection import ClusterAddresses
from wattloop_operator.workloads.ownership import labels_of
from wattloop_operator.workloads.pod_template import Injection
from wattloop_operator.workloads.run_environment import run_environment


def injection_of(
    job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: ClusterAddresses, devices: int
) -> Injection:
    """What is added.

    Args:
        job: The job.
        recurrence: The attempt's decision.
        addresses: What pods are told.
        devices: GPUs of all pods together, which share the batch.
    """
    environment = run_environment(job, recurrence, addresses.in_pod(), devices)
    return Injection(
        labels=labels_of(recurrence, job.spec.template.labels),
        variables=environment.variables(),
        certificate_authority=addresses.certificate_authority,
        reports=bool(addresses.report_url),
        agent_folder=addresses.agent_folder,
    )
