"""PyTorchJob (kubeflow.org/v1) of Kubeflow's training operator: a master and workers, which are pods of the object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattloop_operator.workloads.condition_phase import PhaseConditions, failed_with_first_pod, phase_by_conditions
from wattloop_operator.workloads.pod_state import Pod
from wattloop_operator.workloads.templated_kind import (
    PodTemplate,
    TemplatedKind,
    as_object,
    pod_template_in,
    replicas_of,
)
from wattloop_operator.workloads.workload_kind import ObservedPhase, Spec

CONDITIONS = PhaseConditions(
    succeeded=frozenset({"Succeeded"}), failed=frozenset({"Failed"}), running=frozenset({"Running"})
)
NEVER = "Never"


class PyTorchJob(TemplatedKind):
    """PyTorchJobs restart a failed pod by default (`restartPolicy: OnFailure`), but none here."""

    place = "spec.pytorchReplicaSpecs.Master.template"

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `TemplatedKind`."""
        for replica in as_object(spec.get("pytorchReplicaSpecs")).values():
            found = pod_template_in(as_object(replica))
            if found is not None:
                yield PodTemplate(found, replicas_of(replica))

    def switch_off_retries(self, spec: Spec) -> None:
        """See `TemplatedKind`."""
        for replica in as_object(spec.get("pytorchReplicaSpecs")).values():
            as_object(replica).setdefault("restartPolicy", NEVER)
        # By default the other pods run on after a failure, or after the master has succeeded, and keep their GPUs.
        if isinstance(spec.setdefault("runPolicy", {}), dict):
            spec["runPolicy"].setdefault("cleanPodPolicy", "Running")

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        policy = as_object(as_object(body.get("spec")).get("runPolicy"))
        observed = phase_by_conditions(body, pods, CONDITIONS, suspended=bool(policy.get("suspend")))
        return observed if _restarts(as_object(body.get("spec"))) else failed_with_first_pod(observed, pods)


def _restarts(spec: Mapping[str, Any]) -> bool:
    """Whether the user has chosen that failed pods are restarted."""
    replicas = map(as_object, as_object(spec.get("pytorchReplicaSpecs")).values())
    return any(each.get("restartPolicy") != NEVER for each in replicas)
