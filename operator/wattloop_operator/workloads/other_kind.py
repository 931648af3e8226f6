"""Workloads of other kinds than Job, such as JobSet, PyTorchJob, MPIJob and RayJob.

Only the Kubernetes conventions are assumed: the spec contains pod templates somewhere, and the
status has conditions. A kind without pod templates is refused (TrainJob takes them from a runtime),
because its pods could neither receive the decision nor report.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from wattloop_operator.api.template import Template, Workload
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadState
from wattloop_operator.workloads.injection import Injection, TemplateError, gpus, with_injection
from wattloop_operator.workloads.ownership import controller_uid
from wattloop_operator.workloads.pod_state import DISRUPTION_TARGET, time_of

SUCCEEDED = frozenset({"Completed", "Complete", "Succeeded"})
FAILED = frozenset({"Failed", "FailureTarget"})
RUNNING = frozenset({"Running", "Ready", "StartupPolicyCompleted"})
# Fields beside a pod template, or above it, that give the number of its pods.
COUNTS = ("parallelism", "replicas", "numNodes")
MAX_DEPTH = 20


def other_spec(template: Template, injection: Injection) -> dict[str, Any]:
    """The spec of an attempt's workload, with the additions in every pod template.

    Raises:
        TemplateError: The spec contains no pod template, or the template cannot be started.
    """
    workload = template.workload
    if workload is None:
        raise TemplateError("spec.template.workload is missing")
    check_pod_templates(workload)
    spec = copy.deepcopy(workload.spec)
    for each, _ in list(_pod_templates(spec, 1, 0)):
        each.update(with_injection(each, _present(each, template.training_containers), injection))
    return spec


def check_pod_templates(workload: Workload) -> None:
    """Check that the spec of a workload contains a pod template.

    Raises:
        TemplateError: It contains none.
    """
    if not any(_pod_templates(workload.spec, 1, 0)):
        raise TemplateError(
            f"spec.template.workload: the spec of this {workload.kind} contains no pod template, so its pods cannot "
            "receive their batch size; use a kind that contains pod templates, such as Job, JobSet or PyTorchJob"
        )


def other_devices(spec: Mapping[str, Any], training_containers: tuple[str, ...] | None) -> int:
    """Number of GPUs that the training containers of all pod templates of a spec request.

    Raises:
        TemplateError: A pod template lacks a named container.
    """
    return sum(
        count * gpus(each["spec"], _present(each, training_containers)) for each, count in _pod_templates(spec, 1, 0)
    )


def other_state(body: Mapping[str, Any], recurrence_uid: str) -> WorkloadState:
    """The state of a workload, read from its conditions."""
    metadata, status = body["metadata"], body.get("status") or {}
    true_conditions = {
        str(each.get("type")): each for each in status.get("conditions") or () if str(each.get("status")) == "True"
    }
    phase, condition = WorkloadPhase.PENDING, None
    for types, found in (
        (FAILED, WorkloadPhase.FAILED),
        (SUCCEEDED, WorkloadPhase.SUCCEEDED),
        (RUNNING, WorkloadPhase.RUNNING),
    ):
        condition = next((true_conditions[each] for each in types if each in true_conditions), None)
        if condition is not None:
            phase = found
            break
    else:
        if _has_ready_jobs(status):
            phase = WorkloadPhase.RUNNING
    condition = condition or {}
    changed_at = time_of(condition.get("lastTransitionTime"))
    return WorkloadState(
        name=str(metadata["name"]),
        api_version=str(body["apiVersion"]),
        kind=str(body["kind"]),
        uid=str(metadata.get("uid", "")),
        phase=phase,
        owned=controller_uid(metadata) == recurrence_uid,
        started_at=None if phase is WorkloadPhase.PENDING else time_of(status.get("startTime")) or changed_at,
        all_running_since=changed_at if phase is WorkloadPhase.RUNNING else None,
        ended_at=changed_at if phase.ended else None,
        terminating=metadata.get("deletionTimestamp") is not None,
        failure=_failure(condition) if phase is WorkloadPhase.FAILED else None,
        message=": ".join(str(part) for part in (condition.get("reason"), condition.get("message")) if part),
    )


def _has_ready_jobs(status: Mapping[str, Any]) -> bool:
    """Whether the pods of a job of a JobSet are ready: it has no condition for that, and does not say since when."""
    return any(int(each.get("ready") or 0) > 0 for each in status.get("replicatedJobsStatus") or ())


def _failure(condition: Mapping[str, Any]) -> Failure:
    text = f"{condition.get('reason', '')} {condition.get('message', '')}"
    if "DeadlineExceeded" in text:
        return Failure.DEADLINE
    return Failure.DISRUPTED if DISRUPTION_TARGET in text or "Evicted" in text else Failure.CRASHED


def _pod_templates(value: Any, count: int, depth: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The pod templates inside a value, each with its number of pods."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _pod_templates(item, count, depth + 1)
    elif isinstance(value, dict):
        inner = value.get("spec")
        if isinstance(inner, dict) and isinstance(inner.get("containers"), list):
            yield value, count
            return
        for name in COUNTS:
            if isinstance(value.get(name), int):
                count *= max(value[name], 0)
        for item in value.values():
            yield from _pod_templates(item, count, depth + 1)


def _present(template: Mapping[str, Any], names: tuple[str, ...] | None) -> list[str] | None:
    """The training containers of this template: a launcher's template has none of the workers'."""
    if names is None:
        return None
    present = {str(container.get("name")) for container in template["spec"]["containers"]}
    return [name for name in names if name in present]
