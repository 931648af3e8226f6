"""Workloads of other kinds than Job, such as JobSet, PyTorchJob, MPIJob and RayJob.

Only the Kubernetes conventions are assumed: the spec contains pod templates somewhere, the status has
conditions for the end, and the object or Jobs of it control the pods. Whether and since when pods run, why
they wait and which one failed is read from the pods, as of a Job. A kind without pod templates is refused
(TrainJob takes them from a runtime), because its pods could neither receive the decision nor report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wattloop.printable import printable
from wattloop_operator.api.template import Template, Workload
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadPod, WorkloadState
from wattloop_operator.workloads.injection import Injection, TemplateError, gpus, with_injection
from wattloop_operator.workloads.ownership import controller_uid
from wattloop_operator.workloads.pod_state import (
    DISRUPTION_TARGET,
    LATEST,
    Pod,
    PodFailure,
    PodWait,
    all_running_since,
    any_running,
    bound_pods,
    first_failure,
    image_digest,
    killed_ranks,
    parallelism,
    pod_wait,
    started_at,
    time_of,
    unhealthy_devices,
    workload_pod,
)

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
    spec = workload.spec.value
    for each, _ in list(_pod_templates(spec, 1, 0)):
        each.update(with_injection(each, _present(each, template.training_containers), injection))
    return spec


def check_pod_templates(workload: Workload) -> None:
    """Check that the spec of a workload contains a pod template.

    Raises:
        TemplateError: It contains none.
    """
    if not any(_pod_templates(workload.spec.value, 1, 0)):
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


def other_state(
    body: Mapping[str, Any], recurrence_uid: str, pods: Sequence[Pod] = (), container: str = ""
) -> WorkloadState:
    """The state of a workload, read from its conditions and its pods.

    Args:
        body: The workload.
        recurrence_uid: Uid of the recurrence of its name.
        pods: Its pods in their last known state.
        container: Name of the training container.
    """
    metadata, status = body["metadata"], _object(body.get("status"))
    phase, condition = _phase(status)
    if phase is WorkloadPhase.PENDING and any_running(pods):
        # A JobSet has no condition for running.
        phase = WorkloadPhase.RUNNING
    ambiguous = _ambiguous_indices(pods)

    def distinct(pod: WorkloadPod) -> WorkloadPod:
        return replace(pod, index=None) if pod.index in ambiguous else pod

    changed_at, unhealthy = time_of(condition.get("lastTransitionTime")), unhealthy_devices(pods)
    failure = _failure(condition, pods) if phase is WorkloadPhase.FAILED else None
    started = started_at(pods)
    if started is None and phase is not WorkloadPhase.PENDING:
        started = time_of(status.get("startTime")) or changed_at
    running_since = all_running_since(pods, pod_count(body.get("spec") or {})) if pods else changed_at
    wait = _wait(body, pods) if phase is WorkloadPhase.PENDING else PodWait()
    if phase is WorkloadPhase.PENDING:
        message = wait.message
    elif failure is not None:
        message = failure.message
    else:
        message = unhealthy or _text(condition)
    return WorkloadState(
        name=str(metadata["name"]),
        api_version=str(body["apiVersion"]),
        kind=str(body["kind"]),
        uid=str(metadata.get("uid", "")),
        phase=phase,
        owned=controller_uid(metadata) == recurrence_uid,
        started_at=started,
        all_running_since=running_since if phase is WorkloadPhase.RUNNING else None,
        ended_at=changed_at if phase.ended else None,
        terminating=metadata.get("deletionTimestamp") is not None,
        failure=None if failure is None else failure.failure,
        failed_pod=None if failure is None or failure.pod is None else distinct(failure.pod),
        exit_code=None if failure is None else failure.exit_code,
        output="" if failure is None else failure.output,
        log="" if failure is None else failure.log,
        killed_ranks=killed_ranks(pods) if failure is not None else (),
        message=message,
        wait_reason=wait.reason,
        unhealthy=unhealthy,
        pods=tuple(map(distinct, bound_pods(pods))),
        image_digest=image_digest(pods, container),
    )


def other_training_container(template: Template) -> str:
    """Name of the first container of a workload's pod templates that trains; empty if none does."""
    spec = {} if template.workload is None else template.workload.spec.value
    containers = (each for pod, _ in _pod_templates(spec, 1, 0) for each in pod["spec"]["containers"])
    names = [str(each.get("name")) for each in containers if isinstance(each, dict)]
    return next((name for name in names if name in (template.training_containers or names)), "")


def pod_count(spec: Mapping[str, Any]) -> int:
    """How many pods a spec asks for at a time."""
    return sum(count for _, count in _pod_templates(spec, 1, 0))


def _phase(status: Mapping[str, Any]) -> tuple[WorkloadPhase, Mapping[str, Any]]:
    """The phase and the condition that says so; that is empty if the workload is pending."""
    # No schema of this API bounds the types of another kind's fields.
    conditions = status.get("conditions")
    conditions = conditions if isinstance(conditions, list) else []
    true_conditions = {
        str(each.get("type")): each for each in map(_object, conditions) if str(each.get("status")) == "True"
    }
    for types, phase in (
        (FAILED, WorkloadPhase.FAILED),
        (SUCCEEDED, WorkloadPhase.SUCCEEDED),
        (RUNNING, WorkloadPhase.RUNNING),
    ):
        condition = next((true_conditions[each] for each in types if each in true_conditions), None)
        if condition is not None:
            return phase, condition
    return WorkloadPhase.PENDING, {}


def _failure(condition: Mapping[str, Any], pods: Sequence[Pod]) -> PodFailure:
    """Why a workload failed: from its first failed pod, unless the workload names a cause outside of its pods."""
    text, first = _text(condition), first_failure(pods)
    if first is None or "DeadlineExceeded" in text:
        failure = Failure.CRASHED
        if "DeadlineExceeded" in text:
            failure = Failure.DEADLINE
        elif _is_disruption(text):
            failure = Failure.DISRUPTED
        return PodFailure(failure, LATEST, text)
    failure = Failure.DISRUPTED if _is_disruption(text) else first.failure
    return replace(first, failure=failure, message="; ".join(filter(None, (first.message, text))))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_disruption(text: str) -> bool:
    return DISRUPTION_TARGET in text or "Evicted" in text


def _text(condition: Mapping[str, Any]) -> str:
    return ": ".join(printable(str(part)) for part in (condition.get("reason"), condition.get("message")) if part)


def _wait(body: Mapping[str, Any], pods: Sequence[Pod]) -> PodWait:
    kind, name = str(body["kind"]), str(body["metadata"]["name"])
    if _object(body.get("spec")).get("suspend"):
        return PodWait("", f"its {kind} is suspended (spec.suspend)")
    if pods:
        return pod_wait(pods)
    return PodWait("", f"its {kind} has no pod yet; if this persists, see kubectl describe {kind.lower()} {name}")


def _ambiguous_indices(pods: Sequence[Pod]) -> frozenset[int | None]:
    """The indices that pods of several Jobs have: each Job of a JobSet counts its own pods from 0."""
    owners = defaultdict(set)
    for pod in pods:
        owners[workload_pod(pod).index].add(controller_uid(pod["metadata"]))
    return frozenset(index for index, found in owners.items() if len(found) > 1)


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
                count *= parallelism(value) if name == "parallelism" else max(value[name], 0)
        for item in value.values():
            yield from _pod_templates(item, count, depth + 1)


def _present(template: Mapping[str, Any], names: tuple[str, ...] | None) -> list[str] | None:
    """The training containers of this template: a launcher's template has none of the workers'."""
    if names is None:
        return None
    present = {str(container.get("name")) for container in template["spec"]["containers"]}
    return [name for name in names if name in present]
