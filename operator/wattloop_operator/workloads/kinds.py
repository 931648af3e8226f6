"""The kinds of workload that have a module of their own, and which one a job uses."""

from __future__ import annotations

from wattloop_operator.api.template import Template
from wattloop_operator.workloads.job_set import JobSet
from wattloop_operator.workloads.kubernetes_job import KubernetesJob
from wattloop_operator.workloads.other_kind import OtherKind
from wattloop_operator.workloads.ownership import JOB, GroupKind, group_kind
from wattloop_operator.workloads.pytorch_job import PyTorchJob
from wattloop_operator.workloads.ray_job import RayJob
from wattloop_operator.workloads.train_job import TrainJob
from wattloop_operator.workloads.workload_kind import WorkloadKind

# A later version of a group serves the same fields, or the controller itself would fail with old objects.
KINDS: dict[GroupKind, WorkloadKind] = {
    JOB: KubernetesJob(),
    ("jobset.x-k8s.io", "JobSet"): JobSet(),
    ("trainer.kubeflow.org", "TrainJob"): TrainJob(),
    ("kubeflow.org", "PyTorchJob"): PyTorchJob(),
    ("ray.io", "RayJob"): RayJob(),
}
OTHER = OtherKind()


def kind_named(api_version: str, kind: str) -> WorkloadKind:
    """What Wattloop knows of a kind."""
    return KINDS.get(group_kind(api_version, kind), OTHER)


def kind_of_template(template: Template) -> WorkloadKind:
    """What Wattloop knows of the kind of a template's workload."""
    return kind_named(template.api_version, template.kind)
