"""What a training process is told, made from its job and its decision: the same in a pod and on a laptop."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop.environment import RunEnvironment
from wattloop_operator.api.batch_size import BatchSizeScope
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.attempt.progress import target_of


@dataclass(frozen=True)
class RunAddresses:
    """Where a training process finds what it talks to.

    Attributes:
        report_url: Base address of the reporting API; empty: it reports nowhere.
        token_file: Where its token stands.
        certificate_authority_file: The certificates to check the reporting API against.
        agent_socket: The node agent's socket; empty: none.
    """

    report_url: str = ""
    token_file: str = ""
    certificate_authority_file: str = ""
    agent_socket: str = ""


def run_environment(
    job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: RunAddresses, devices: int
) -> RunEnvironment:
    """The environment of one attempt.

    Args:
        job: The job.
        recurrence: The attempt's decision.
        addresses: Where the process finds what it talks to.
        devices: GPUs that share the global batch; 0 counts as 1.
    """
    spec, limit = recurrence.spec, job.spec.power.limit
    devices = max(devices, 1)
    per_device = job.spec.batch_size.scope is BatchSizeScope.PER_DEVICE
    namespace, name = recurrence.metadata.namespace, recurrence.metadata.name
    url = addresses.report_url.rstrip("/")
    return RunEnvironment(
        job=f"{namespace}/{spec.job_ref.name}",
        recurrence=name,
        batch_size=spec.batch_size * devices if per_device else spec.batch_size,
        per_device_batch_size=spec.batch_size if per_device else max(spec.batch_size // devices, 1),
        learning_rate_scale=float(spec.learning_rate_scale),
        max_epochs=spec.max_epochs,
        target=target_of(spec.target),
        power_limit_watts=None if spec.power_limit_watts is None else float(spec.power_limit_watts),
        profile_power_limits=spec.profile_power_limits,
        power_selector=limit.selector.value,
        max_slowdown_percent=float(limit.max_slowdown_percent or 0),
        eta=spec.energy_weight_percent / 100,
        seed=int(spec.decision.seed) or None,
        parameters={parameter.upper(): value for parameter, value in spec.parameters.items()},
        report_url=f"{url}/v1/namespaces/{namespace}/recurrences/{name}" if url else "",
        token_file=addresses.token_file,
        certificate_authority_file=addresses.certificate_authority_file,
        agent_socket=addresses.agent_socket,
    )
