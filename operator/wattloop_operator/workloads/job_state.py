"""Reads a batch/v1 Job and its pods: where it stands, and why it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadState
from wattloop_operator.workloads.ownership import controller_uid
from wattloop_operator.workloads.pod_state import (
    DISRUPTION_TARGET,
    Pod,
    any_runs,
    bound,
    first_failure,
    moment,
    started_at,
    what_is_unhealthy,
    why_waiting,
)


def job_state(body: Mapping[str, Any], pods: Sequence[Pod], recurrence_uid: str) -> WorkloadState:
    """What is seen of a Job.

    Args:
        body: The Job.
        pods: Its pods, as they were seen last; those that are gone may be among them.
        recurrence_uid: Uid of the recurrence of its name.
    """
    metadata, status = body["metadata"], body.get("status") or {}
    failed, complete = _condition(body, "Failed"), _condition(body, "Complete")
    phase, failure, ended_at = WorkloadPhase.PENDING, None, None
    message, unhealthy = "", what_is_unhealthy(pods)
    if complete is not None:
        phase = WorkloadPhase.SUCCEEDED
        ended_at = moment(status.get("completionTime")) or moment(complete.get("lastTransitionTime"))
    elif failed is not None:
        phase = WorkloadPhase.FAILED
        failure, message = _why_failed(failed, pods)
        ended_at = moment(failed.get("lastTransitionTime"))
    elif any_runs(pods) or status.get("ready"):
        phase, message = WorkloadPhase.RUNNING, unhealthy
    else:
        message = _why_waiting(body, pods)
    started = started_at(pods)
    if started is None and phase is not WorkloadPhase.PENDING:
        started = moment(status.get("startTime"))
    return WorkloadState(
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        phase=phase,
        owned=controller_uid(metadata) == recurrence_uid,
        started_at=started,
        ended_at=ended_at,
        ending=metadata.get("deletionTimestamp") is not None,
        failure=failure,
        message=message,
        unhealthy=unhealthy,
        pods=bound(pods),
    )


def needs_pods(body: Mapping[str, Any], pods: Sequence[Pod]) -> bool:
    """Whether only pods that were not seen yet can tell why a Job failed: their events come on another stream."""
    failed = _condition(body, "Failed")
    return failed is not None and _from_job_alone(failed) is None and first_failure(pods) is None


def _from_job_alone(failed: Mapping[str, Any]) -> tuple[Failure, str] | None:
    reason, said = failed.get("reason"), str(failed.get("message") or "")
    if reason == "DeadlineExceeded":
        return Failure.DEADLINE, f"it ran past its Job's activeDeadlineSeconds: {said}"
    if reason == "PodFailurePolicy" and DISRUPTION_TARGET in said:
        return Failure.DISRUPTED, said
    return None


def _why_failed(failed: Mapping[str, Any], pods: Sequence[Pod]) -> tuple[Failure, str]:
    known = _from_job_alone(failed)
    first = first_failure(pods)
    if first is not None and (known is None or (known[0] is Failure.DISRUPTED and first.failure is Failure.DISRUPTED)):
        return first.failure, first.message
    if known is not None:
        return known
    return Failure.DISRUPTED, f"its pods are gone, and nothing says how they ended ({failed.get('reason')})"


def _why_waiting(body: Mapping[str, Any], pods: Sequence[Pod]) -> str:
    if (body.get("spec") or {}).get("suspend"):
        return "its Job is suspended (spec.suspend)"
    return why_waiting(pods) or ("" if pods else "its Job has no pod yet; kubectl describe job says why if it stays so")


def _condition(body: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind and each.get("status") == "True"), None)
