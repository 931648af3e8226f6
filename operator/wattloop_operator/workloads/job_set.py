"""JobSet (jobset.x-k8s.io): groups of Jobs that train together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattloop_operator.workloads.condition_phase import PhaseConditions, phase_by_conditions
from wattloop_operator.workloads.kubernetes_job import switch_off_retries
from wattloop_operator.workloads.ownership import JOB
from wattloop_operator.workloads.pod_state import Pod, parallelism
from wattloop_operator.workloads.templated_kind import (
    PodTemplate,
    TemplatedKind,
    as_object,
    pod_template_in,
    replicas_of,
)
from wattloop_operator.workloads.workload_kind import ObservedPhase, Spec

CONDITIONS = PhaseConditions(succeeded=frozenset({"Completed"}), failed=frozenset({"Failed"}))


class JobSet(TemplatedKind):
    """JobSets fail with their first Job by default. Their Jobs restart a pod six times by default, but none here."""

    between = frozenset({JOB})
    place = "spec.replicatedJobs[].template.spec.template"

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `TemplatedKind`."""
        for job, replicas in _jobs(spec):
            yield PodTemplate(job["template"], replicas * parallelism(job))

    def switch_off_retries(self, spec: Spec) -> None:
        """See `TemplatedKind`."""
        for job, _ in _jobs(spec):
            switch_off_retries(job)

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        suspended = bool(as_object(body.get("spec")).get("suspend"))
        return phase_by_conditions(body, pods, CONDITIONS, suspended=suspended)


def _jobs(spec: Mapping[str, Any]) -> Iterator[tuple[Spec, int]]:
    """The specs of Jobs with a pod template, each with the number of its Jobs."""
    groups = spec.get("replicatedJobs")
    for group in map(as_object, groups if isinstance(groups, list) else ()):
        job = as_object(as_object(group.get("template")).get("spec"))
        if pod_template_in(job) is not None:
            yield job, replicas_of(group)
