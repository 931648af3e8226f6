"""Workloads of a kind that Wattloop does not know, such as MPIJob: only the Kubernetes conventions are assumed.

The spec contains pod templates somewhere, the status has conditions for the end, and the object or Jobs of it control
the pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.workloads.condition_phase import PhaseConditions, phase_by_conditions
from wattloop_operator.workloads.ownership import JOB
from wattloop_operator.workloads.pod_state import Pod, parallelism
from wattloop_operator.workloads.templated_kind import PodTemplate, TemplatedKind, as_object
from wattloop_operator.workloads.workload_kind import ObservedPhase, Spec

CONDITIONS = PhaseConditions(
    succeeded=frozenset({"Completed", "Complete", "Succeeded"}),
    failed=frozenset({"Failed", "FailureTarget"}),
    running=frozenset({"Running", "Ready"}),
    # The pods may have no label by which they are found.
    failure_without_pods=Failure.CRASHED,
)
# Fields beside a pod template, or above it, that give the number of its pods.
COUNTS = ("parallelism", "replicas", "numNodes")
MAX_DEPTH = 20


class OtherKind(TemplatedKind):
    """Any kind that has no module of its own."""

    between = frozenset({JOB})

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `TemplatedKind`."""
        return _pod_templates(spec, 1, 0)

    def switch_off_retries(self, spec: Spec) -> None:
        """See `TemplatedKind`. What retries an unknown kind is not known."""

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        suspended = bool(as_object(body.get("spec")).get("suspend"))
        return phase_by_conditions(body, pods, CONDITIONS, suspended=suspended)


def _pod_templates(value: Any, count: int, depth: int) -> Iterator[PodTemplate]:
    """The pod templates inside a value."""
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
