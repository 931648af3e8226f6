"""The kinds of workload that Wattloop knows, all others, and which one a job uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattloop_operator.api.template import Template
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.workloads.job_set import JobSet
from wattloop_operator.workloads.kubernetes_job import KubernetesJob
from wattloop_operator.workloads.ownership import JOB, GroupKind, group_kind
from wattloop_operator.workloads.pod_state import Pod, parallelism
from wattloop_operator.workloads.ray_job import RayJob
from wattloop_operator.workloads.train_job import TrainJob
from wattloop_operator.workloads.workload_kind import (
    ObservedPhase,
    PhaseConditions,
    PodTemplate,
    Spec,
    WorkloadKind,
    as_object,
    failed_with_first_pod,
    phase_by_conditions,
    pod_template_in,
    replicas_of,
)

OTHER_CONDITIONS = PhaseConditions(
    succeeded=frozenset({"Completed", "Complete", "Succeeded"}),
    failed=frozenset({"Failed", "FailureTarget"}),
    running=frozenset({"Running", "Ready"}),
    # The pods may have no label by which they are found.
    failure_without_pods=Failure.CRASHED,
)
# Fields beside a pod template, or above it, that give the number of its pods.
COUNTS = ("parallelism", "replicas", "numNodes")
MAX_DEPTH = 20


class OtherKind(WorkloadKind):
    """Any kind that is not known; what retries it is not known either."""

    between = frozenset({JOB})
    conditions = OTHER_CONDITIONS

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `WorkloadKind`."""
        return _pod_templates(spec, 1, 0)


def _pod_templates(value: Any, count: int, depth: int) -> Iterator[PodTemplate]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _pod_templates(item, count, depth + 1)
    elif isinstance(value, dict):
        inner = value.get("spec")
        if isinstance(inner, dict) and isinstance(inner.get("containers"), list):
            yield PodTemplate(value, count)
            return
        for name in COUNTS:
            if isinstance(value.get(name), int):
                count *= parallelism(value) if name == "parallelism" else max(value[name], 0)
        for item in value.values():
            yield from _pod_templates(item, count, depth + 1)


PYTORCH_CONDITIONS = PhaseConditions(
    succeeded=frozenset({"Succeeded"}), failed=frozenset({"Failed"}), running=frozenset({"Running"})
)
NEVER = "Never"


class PyTorchJob(WorkloadKind):
    """PyTorchJobs restart a failed pod by default (`restartPolicy: OnFailure`), but none here."""

    place = "spec.pytorchReplicaSpecs.Master.template"

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `WorkloadKind`."""
        for replica in as_object(spec.get("pytorchReplicaSpecs")).values():
            found = pod_template_in(as_object(replica))
            if found is not None:
                yield PodTemplate(found, replicas_of(replica))

    def switch_off_retries(self, spec: Spec) -> None:
        """See `WorkloadKind`."""
        for replica in as_object(spec.get("pytorchReplicaSpecs")).values():
            as_object(replica).setdefault("restartPolicy", NEVER)
        # By default the other pods run on after a failure, or after the master has succeeded, and keep their GPUs.
        if isinstance(spec.setdefault("runPolicy", {}), dict):
            spec["runPolicy"].setdefault("cleanPodPolicy", "Running")

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        policy = as_object(as_object(body.get("spec")).get("runPolicy"))
        observed = phase_by_conditions(body, pods, PYTORCH_CONDITIONS, suspended=bool(policy.get("suspend")))
        replicas = map(as_object, as_object(as_object(body.get("spec")).get("pytorchReplicaSpecs")).values())
        # The user may have chosen that failed pods are restarted.
        restarts = any(each.get("restartPolicy") != NEVER for each in replicas)
        return observed if restarts else failed_with_first_pod(observed, pods)


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
