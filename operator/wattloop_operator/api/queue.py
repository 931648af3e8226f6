"""The queue of Kueue in which the workloads of a job wait for quota."""

from __future__ import annotations

from pydantic import Field

from wattloop_operator.api.field_types import DNS_SUBDOMAIN_PATTERN
from wattloop_operator.api.model import ApiModel

# Kueue writes both into labels.
MAX_LABEL_CHARACTERS = 63


class Queue(ApiModel):
    """The queue of Kueue in which the workloads of a job wait for quota."""

    name: str = Field(
        description="Name of a LocalQueue in the job's namespace. Each attempt's workload gets it as the label "
        "kueue.x-k8s.io/queue-name. Without Kueue in the cluster, workloads start at once.",
        min_length=1,
        max_length=MAX_LABEL_CHARACTERS,
        pattern=DNS_SUBDOMAIN_PATTERN,
    )
    priority_class: str | None = Field(
        default=None,
        description="Name of a WorkloadPriorityClass, the label kueue.x-k8s.io/priority-class of each workload. "
        "Absent: the priority of its pods.",
        min_length=1,
        max_length=MAX_LABEL_CHARACTERS,
        pattern=DNS_SUBDOMAIN_PATTERN,
    )
