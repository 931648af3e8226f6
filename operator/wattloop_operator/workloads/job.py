"""A batch/v1 Job of an attempt, from the user's template."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.workloads.cluster_injection import ClusterAddresses
from wattloop_operator.workloads.injection_additions import injection_of
from wattloop_operator.workloads.pod_template import TemplateError, gpus, with_injection

# Says in the Job itself, which outlives its pods, that the cluster ended it.
DISRUPTION_RULE = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def job_spec(job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: ClusterAddresses) -> dict[str, Any]:
    """The spec of an attempt's Job.

    Raises:
        TemplateError: The template cannot be started as it stands.
    """
    template = job.spec.template
    if template.job is None:
        raise TemplateError("spec.template.job is missing")
    spec = copy.deepcopy(template.job)
    devices = job_devices(spec, template.training_containers)
    injection = injection_of(job, recurrence, addresses, devices)
    spec["template"] = with_injection(spec["template"], template.training_containers, injection)
    pod_spec = spec["template"]["spec"]
    pod_spec.setdefault("restartPolicy", "Never")
    if "backoffLimit" not in spec and "backoffLimitPerIndex" not in spec:
        # Wattloop retries by itself, with another decision.
        spec["backoffLimit"] = 0
        if "podFailurePolicy" not in spec and pod_spec["restartPolicy"] == "Never":
            spec["podFailurePolicy"] = {"rules": [DISRUPTION_RULE]}
    return spec


def job_devices(spec: Mapping[str, Any], training_containers: Collection[str] | None) -> int:
    """How many GPUs the training containers of a Job's pods ask for.

    Raises:
        TemplateError: There is no such container.
    """
    parallelism = spec.get("parallelism")
    pods = parallelism if isinstance(parallelism, int) else 1
    return pods * gpus(spec["template"]["spec"], training_containers)
