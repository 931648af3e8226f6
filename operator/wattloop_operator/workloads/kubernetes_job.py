"""The batch/v1 Job of an attempt: its spec from the template, and its state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wattloop.printable import printable
from wattloop_operator.api.template import Template
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadState
from wattloop_operator.workloads.injection import Injection, TemplateError, check_output_volume, gpus, with_injection
from wattloop_operator.workloads.ownership import controller_uid
from wattloop_operator.workloads.pod_state import (
    DISRUPTION_TARGET,
    Pod,
    PodWait,
    all_running_since,
    any_running,
    bound_pods,
    condition_of,
    first_failure,
    image_digest,
    killed_ranks,
    parallelism,
    pod_wait,
    started_at,
    time_of,
    unhealthy_devices,
)

# The Job outlives its pods, so the rule records in the Job that the cluster disrupted it.
DISRUPTION_RULE = {"action": "FailJob", "onPodConditions": [{"type": DISRUPTION_TARGET, "status": "True"}]}


def job_spec(template: Template, injection: Injection) -> dict[str, Any]:
    """The spec of an attempt's Job.

    Raises:
        TemplateError: The template cannot be started, or its containers have no volume for their models.
    """
    if template.job is None:
        raise TemplateError("spec.template.job is missing")
    spec = template.job.value
    check_output_volume(spec["template"]["spec"], template.training_containers, injection)
    spec["template"] = with_injection(spec["template"], template.training_containers, injection)
    pod_spec = spec["template"]["spec"]
    pod_spec.setdefault("restartPolicy", "Never")
    if "backoffLimit" not in spec and "backoffLimitPerIndex" not in spec:
        # Wattloop retries an attempt itself, with a new decision.
        spec["backoffLimit"] = 0
        if "podFailurePolicy" not in spec and pod_spec["restartPolicy"] == "Never":
            spec["podFailurePolicy"] = {"rules": [DISRUPTION_RULE]}
    return spec


def job_devices(spec: Mapping[str, Any], training_containers: Collection[str] | None) -> int:
    """Number of GPUs that the training containers of a Job's pods request.

    Raises:
        TemplateError: The pods lack a named container.
    """
    return parallelism(spec) * gpus(spec["template"]["spec"], training_containers)


def training_container(template: Template) -> str:
    """Name of the first container of a Job's template that trains.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "proxy"}, {"name": "train"}]}}
        >>> training_container(Template(job={"template": pod}, training_containers=("train",)))
        'train'
    """
    if template.job is None:
        return ""
    names = [str(container.get("name")) for container in template.job.value["template"]["spec"]["containers"]]
    return next((name for name in names if name in (template.training_containers or names)), "")


def job_state(body: Mapping[str, Any], pods: Sequence[Pod], recurrence_uid: str, container: str = "") -> WorkloadState:
    """The state of a Job.

    Args:
        body: The Job.
        pods: Its pods in their last known state, deleted ones included.
        recurrence_uid: Uid of the recurrence of its name.
        container: Name of the training container.
    """
    metadata, status = body["metadata"], body.get("status") or {}
    failed, complete = _true_condition(body, "Failed"), _true_condition(body, "Complete")
    phase, failure, ended_at, first = WorkloadPhase.PENDING, None, None, None
    message, wait, unhealthy = "", PodWait(), unhealthy_devices(pods)
    if complete is not None:
        phase = WorkloadPhase.SUCCEEDED
        ended_at = time_of(status.get("completionTime")) or time_of(complete.get("lastTransitionTime"))
    elif failed is not None:
        phase = WorkloadPhase.FAILED
        failure, message = _failure(failed, pods)
        first = first_failure(pods)
        ended_at = time_of(failed.get("lastTransitionTime"))
    elif any_running(pods) or status.get("ready"):
        phase, message = WorkloadPhase.RUNNING, unhealthy
    else:
        wait = _wait(body, pods)
        message = wait.message
    started = started_at(pods)
    if started is None and phase is not WorkloadPhase.PENDING:
        started = time_of(status.get("startTime"))
    running_since = all_running_since(pods, parallelism(body.get("spec") or {}))
    return WorkloadState(
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        phase=phase,
        owned=controller_uid(metadata) == recurrence_uid,
        started_at=started,
        all_running_since=running_since if phase is WorkloadPhase.RUNNING else None,
        ended_at=ended_at,
        terminating=metadata.get("deletionTimestamp") is not None,
        failure=failure,
        failed_pod=None if first is None else first.pod,
        exit_code=None if first is None else first.exit_code,
        output="" if first is None else first.output,
        log="" if first is None else first.log,
        killed_ranks=killed_ranks(pods) if phase is WorkloadPhase.FAILED else (),
        message=message,
        wait_reason=wait.reason,
        unhealthy=unhealthy,
        pods=bound_pods(pods),
        image_digest=image_digest(pods, container),
    )


def needs_pods(body: Mapping[str, Any], pods: Sequence[Pod]) -> bool:
    """Whether the cause of a Job's failure is in pods whose watch events have not arrived yet."""
    failed = _true_condition(body, "Failed")
    return failed is not None and _failure_of_job(failed) is None and first_failure(pods) is None


def _failure_of_job(failed: Mapping[str, Any]) -> tuple[Failure, str] | None:
    """The cause as far as the Job's own condition gives it."""
    reason, message = failed.get("reason"), printable(str(failed.get("message") or ""))
    if reason == "DeadlineExceeded":
        return Failure.DEADLINE, f"it exceeded its Job's activeDeadlineSeconds: {message}"
    if reason == "PodFailurePolicy" and DISRUPTION_TARGET in message:
        return Failure.DISRUPTED, message
    return None


def _failure(failed: Mapping[str, Any], pods: Sequence[Pod]) -> tuple[Failure, str]:
    known = _failure_of_job(failed)
    first = first_failure(pods)
    if first is not None and (known is None or (known[0] is Failure.DISRUPTED and first.failure is Failure.DISRUPTED)):
        return first.failure, first.message
    if known is not None:
        return known
    return Failure.DISRUPTED, f"its pods are gone and left no record of how they ended ({failed.get('reason')})"


def _wait(body: Mapping[str, Any], pods: Sequence[Pod]) -> PodWait:
    if (body.get("spec") or {}).get("suspend"):
        return PodWait("", "its Job is suspended (spec.suspend)")
    return pod_wait(pods) if pods else PodWait("", "its Job has no pod yet; if this persists, see kubectl describe job")


def _true_condition(body: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    condition = condition_of(body, kind)
    return condition if condition is not None and condition.get("status") == "True" else None
