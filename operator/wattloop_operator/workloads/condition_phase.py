"""The phase of a workload whose controller writes conditions, as all kinds but Job and RayJob have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattloop.printable import printable
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.workloads.pod_state import (
    DISRUPTION_TARGET,
    LATEST,
    Pod,
    PodFailure,
    PodWait,
    any_running,
    first_failure,
    pod_wait,
    time_of,
)
from wattloop_operator.workloads.templated_kind import as_object, objects_in
from wattloop_operator.workloads.workload_kind import ObservedPhase

# As Kubernetes, JobSet, Trainer and KubeRay say it; the text is the training operator's.
DEADLINE_EXCEEDED = ("DeadlineExceeded", "active longer than specified deadline")


@dataclass(frozen=True)
class PhaseConditions:
    """Types of the conditions that say that a workload has ended, or that it runs."""

    succeeded: frozenset[str]
    failed: frozenset[str]
    running: frozenset[str] = frozenset()
    failure_without_pods: Failure = Failure.DISRUPTED
    """What a failure is if no pod tells of it: a batch size is not blamed for an unknown cause."""


def phase_by_conditions(
    body: Mapping[str, Any], pods: Sequence[Pod], conditions: PhaseConditions, *, suspended: bool
) -> ObservedPhase:
    """The phase of a workload.

    Args:
        body: The object.
        pods: Its pods.
        conditions: The conditions of its kind.
        suspended: Whether its spec says that it has no pods.
    """
    status = as_object(body.get("status"))
    phase, condition = _phase(status, conditions)
    if phase is WorkloadPhase.PENDING and any_running(pods):
        # A JobSet has no condition for running.
        phase = WorkloadPhase.RUNNING
    if suspended and phase is WorkloadPhase.RUNNING and (states_suspension(body) or not any_running(pods)):
        # Its last pods may still end, and a condition may be of the time before.
        phase, condition = WorkloadPhase.PENDING, {}
    since = time_of(condition.get("lastTransitionTime"))
    return ObservedPhase(
        phase,
        since,
        started_at=time_of(status.get("startTime")) or since,
        message=reason_and_message(condition),
        failure=_failure(condition, pods, conditions) if phase is WorkloadPhase.FAILED else None,
        wait=wait_of(body, pods, suspended=suspended) if phase is WorkloadPhase.PENDING else PodWait(),
        suspended=suspended and phase is WorkloadPhase.PENDING,
    )


def failed_with_first_pod(observed: ObservedPhase, pods: Sequence[Pod]) -> ObservedPhase:
    """The phase of a workload whose controller replaces failed and deleted pods: it ends with the first of them.

    The controller would train with the same batch size again, and the pods that are left may wait for the lost one.
    """
    first = None if observed.phase.ended or observed.suspended else first_failure(pods)
    if first is None:
        return observed
    phase = WorkloadPhase.FAILED
    return ObservedPhase(phase, first.ended_at, observed.started_at, failure=first, may_run_again=True)


def states_suspension(body: Mapping[str, Any]) -> bool:
    """Whether the controller of a workload says that it has suspended it."""
    conditions = objects_in(as_object(body.get("status")).get("conditions"))
    return any(each.get("type") == "Suspended" and str(each.get("status")) == "True" for each in conditions)


def wait_of(body: Mapping[str, Any], pods: Sequence[Pod], *, suspended: bool) -> PodWait:
    """Why the pods of a workload do not run yet."""
    kind, name = str(body["kind"]), str(body["metadata"]["name"])
    if suspended:
        return PodWait("", f"its {kind} is suspended (spec.suspend)")
    if pods:
        return pod_wait(pods)
    return PodWait("", f"its {kind} has no pod yet; if this persists, see kubectl describe {kind.lower()} {name}")


def failure_of(text: str, pods: Sequence[Pod], without_pods: Failure) -> PodFailure:
    """Why a workload failed: from its first failed pod, unless the workload names a cause outside of its pods.

    Args:
        text: What the workload says of its failure.
        pods: Its pods.
        without_pods: The failure if neither says more.
    """
    first = first_failure(pods)
    if any(each in text for each in DEADLINE_EXCEEDED):
        return PodFailure(Failure.DEADLINE, LATEST, text)
    disrupted = DISRUPTION_TARGET in text or "Evicted" in text
    if first is None:
        return PodFailure(Failure.DISRUPTED if disrupted else without_pods, LATEST, text)
    message = "; ".join(filter(None, (first.message, text)))
    return first.caused_by(Failure.DISRUPTED if disrupted else first.failure, message)


def reason_and_message(said: Mapping[str, Any]) -> str:
    """What a condition or a status says: its reason, its message, or both; empty if it has neither.

    Example:
        >>> reason_and_message({"reason": "Evicted", "message": "no quota"}), reason_and_message({"reason": "Evicted"})
        ('Evicted: no quota', 'Evicted')
    """
    return ": ".join(printable(str(part)) for part in (said.get("reason"), said.get("message")) if part)


def _phase(status: Mapping[str, Any], types: PhaseConditions) -> tuple[WorkloadPhase, Mapping[str, Any]]:
    """The phase and the condition that says so; that is empty if the workload is pending."""
    found = status.get("conditions")
    conditions = found if isinstance(found, list) else []
    true_conditions = {
        str(each.get("type")): each for each in map(as_object, conditions) if str(each.get("status")) == "True"
    }
    for names, phase in (
        (types.failed, WorkloadPhase.FAILED),
        (types.succeeded, WorkloadPhase.SUCCEEDED),
        (types.running, WorkloadPhase.RUNNING),
    ):
        condition = next((each for name, each in true_conditions.items() if name in names), None)
        if condition is not None:
            return phase, condition
    return WorkloadPhase.PENDING, {}


def _failure(condition: Mapping[str, Any], pods: Sequence[Pod], types: PhaseConditions) -> PodFailure:
    return failure_of(reason_and_message(condition), pods, types.failure_without_pods)
