"""Where objects of a kind are found at the API server."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy
from wattloop_operator.api.group import API_VERSION
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence


@dataclass(frozen=True)
class ResourceType:
    """A kind of object and its address.

    Attributes:
        api_version: Group and version, such as batch/v1.
        plural: Its name in addresses.
        kind: Its name in manifests.
    """

    api_version: str
    plural: str
    kind: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The address of one object, or of all of them (in a namespace, or in the cluster).

        Example:
            >>> JOBS.path("team", "digits-0")
            '/apis/batch/v1/namespaces/team/jobs/digits-0'
        """
        root = "/apis/" if "/" in self.api_version else "/api/"
        parts = [f"namespaces/{quote(namespace, safe='')}"] if namespace else []
        parts += [self.plural, *([quote(name, safe="")] if name else []), *([subresource] if subresource else [])]
        return root + "/".join([self.api_version, *parts])


RECURRING_TRAINING_JOBS = ResourceType(
    API_VERSION, RecurringTrainingJob.resource.plural, RecurringTrainingJob.resource.kind
)
TRAINING_RECURRENCES = ResourceType(API_VERSION, TrainingRecurrence.resource.plural, TrainingRecurrence.resource.kind)
GPU_POWER_POLICIES = ResourceType(API_VERSION, GPUPowerPolicy.resource.plural, GPUPowerPolicy.resource.kind)
JOBS = ResourceType("batch/v1", "jobs", "Job")
PODS = ResourceType("v1", "pods", "Pod")
NODES = ResourceType("v1", "nodes", "Node")
EVENTS = ResourceType("events.k8s.io/v1", "events", "Event")
LEASES = ResourceType("coordination.k8s.io/v1", "leases", "Lease")
TOKEN_REVIEWS = ResourceType("authentication.k8s.io/v1", "tokenreviews", "TokenReview")
