"""TrainJob (trainer.kubeflow.org) of Kubeflow Trainer 2.1 to 2.3: its pods come from a training runtime.

A TrainJob has no pod template. The environment gets in by `spec.trainer.env`, all else by a patch of the runtime's
group and container `node`, which Trainer trains in. 2.1 calls the patch `podTemplateOverrides`, 2.2 and later
`runtimePatches`; the API server drops the field that its version does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wattloop.wire.launcher import PODS_VARIABLE
from wattloop_operator.api.field_types import DNS_SUBDOMAIN_PATTERN
from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import NAMED, SPEC, wrong_value
from wattloop_operator.domain.snapshot import WorkloadPhase
from wattloop_operator.workloads.injection import Injection, TemplateError, gpus, with_injection
from wattloop_operator.workloads.ownership import JOB
from wattloop_operator.workloads.pod_state import Pod, without_restarts
from wattloop_operator.workloads.workload_kind import (
    ObservedPhase,
    PhaseConditions,
    RuntimeReference,
    Spec,
    WorkloadKind,
    as_object,
    failed_with_first_pod,
    replicas_of,
)

CONDITIONS = PhaseConditions(succeeded=frozenset({"Complete"}), failed=frozenset({"Failed"}))
MANAGER = "wattloop.dev/operator"
# Trainer's name of the group of Jobs that trains, and of its container.
NODE = "node"
CLUSTER_RUNTIME, NAMESPACE_RUNTIME = "ClusterTrainingRuntime", "TrainingRuntime"
FORM: Mapping[str, Any] = {
    "trainer": {"numNodes": int, "env": [NAMED], "resourcesPerNode": {}},
    "runtimePatches": [{"manager": str}],
    "podTemplateOverrides": [{}],
}


class TrainJob(WorkloadKind):
    """TrainJobs, which have no pod template.

    The runtime's Jobs restart failed pods, and Trainer starts a failed TrainJob again once its JobSet is gone (up to
    2.3.0). Neither can be switched off from a TrainJob. So an attempt ends with its first failed pod, and its TrainJob
    is deleted when that is written down.
    """

    between = frozenset({JOB, ("jobset.x-k8s.io", "JobSet")})
    conditions = CONDITIONS
    patches = ("runtimePatches", "podTemplateOverrides")

    def spec(self, template: Template, injection: Injection) -> Spec:
        """See `WorkloadKind`."""
        spec = template.spec.value
        trainer = _trainer(spec, injection.training_containers)
        container = {"name": NODE, "env": trainer.get("env") or []}
        pod = with_injection({"spec": {"containers": [container]}}, None, injection)
        (container,) = pod["spec"]["containers"]
        nodes = replicas_of(trainer, "numNodes")
        trainer["env"] = [*([{"name": PODS_VARIABLE, "value": str(nodes)}] if nodes > 1 else []), *container["env"]]
        # Of Trainer 2.2 and later, and of 2.1.
        override = {"targetJobs": [{"name": NODE}], "metadata": pod["metadata"], "spec": _patched_spec(pod)}
        for field, patch in zip(self.patches, (_runtime_patch(pod), override), strict=True):
            spec[field] = [*(spec.get(field) or ()), patch]
        return spec

    def devices(self, template: Template, names: Sequence[str] | None) -> int:
        """See `WorkloadKind`."""
        trainer = _trainer(template.spec.value, names)
        resources = trainer["resourcesPerNode"]
        return replicas_of(trainer, "numNodes") * gpus({"containers": [{"name": NODE, "resources": resources}]}, None)

    def runtime(self, template: Template) -> RuntimeReference | None:
        """See `WorkloadKind`."""
        reference = as_object(template.spec.value.get("runtimeRef"))
        group, _, _ = template.api_version.rpartition("/")
        kind, name = reference.get("kind") or CLUSTER_RUNTIME, reference.get("name")
        # The operator requests what is named here with its own rights, so it requests runtimes only.
        if (reference.get("apiGroup") or group) != group or kind not in (CLUSTER_RUNTIME, NAMESPACE_RUNTIME):
            return None
        if not isinstance(name, str) or not re.fullmatch(DNS_SUBDOMAIN_PATTERN, name):
            return None
        return RuntimeReference(template.api_version, kind, name, namespaced=kind == NAMESPACE_RUNTIME)

    def training_containers(self, _template: Template, names: Sequence[str] | None) -> list[str]:
        """See `WorkloadKind`."""
        return [NODE] if NODE in (names or (NODE,)) else []

    def pods(self, spec: Mapping[str, Any]) -> int:
        """See `WorkloadKind`."""
        return replicas_of(as_object(spec.get("trainer")), "numNodes")

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        pods = [without_restarts(pod, NODE) for pod in pods]
        observed = super().observe(body, pods)
        if observed.phase is WorkloadPhase.FAILED:
            return replace(observed, may_run_again=True)
        return failed_with_first_pod(observed, pods)


def _trainer(spec: Spec, names: Sequence[str] | None) -> dict[str, Any]:
    """The part `trainer` of a spec."""
    place = "spec.template.spec"
    wrong = wrong_value(SPEC, spec, FORM)
    if wrong is not None:
        raise TemplateError(str(wrong))
    trainer: dict[str, Any] = spec.get("trainer") or {}
    missing = [name for name in ("numNodes", "resourcesPerNode") if trainer.get(name) is None]
    if missing:
        raise TemplateError(
            f"{place}.trainer.{missing[0]} is missing: Wattloop counts the nodes and GPUs that share the batch in the "
            "TrainJob, because its runtime may change; set it (resourcesPerNode: {} for a training without GPUs)"
        )
    if any(each.get("manager") == MANAGER for each in spec.get("runtimePatches") or ()):
        raise TemplateError(f"{place}.runtimePatches: the manager {MANAGER} is reserved for Wattloop; remove its patch")
    if names is not None and NODE not in names:
        raise TemplateError(
            f"trainingContainers names {names[0]}, but the container of a TrainJob that trains is {NODE}"
        )
    return trainer


def _runtime_patch(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The additions of a pod template as a patch of Trainer 2.2 and later."""
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    spec = _patched_spec(pod) | ({} if grace is None else {"terminationGracePeriodSeconds": grace})
    job = {"name": NODE, "template": {"spec": {"template": {"metadata": pod["metadata"], "spec": spec}}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def _patched_spec(pod: Mapping[str, Any]) -> dict[str, Any]:
    # The environment of this container may be set by spec.trainer alone.
    container = {"name": NODE, "volumeMounts": pod["spec"]["containers"][0].get("volumeMounts") or []}
    return {"volumes": pod["spec"].get("volumes") or [], "containers": [container]}
