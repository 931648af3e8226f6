"""Workloads of other kinds than Job: JobSet, PyTorchJob, MPIJob, RayJob and whatever else is made of pod templates.

Nothing is known of a kind but what Kubernetes' conventions say: somewhere in its spec are pod templates, and its status
has conditions. A kind without pod templates (TrainJob takes them from a runtime) is refused, since its pods could
neither be told what was decided nor report.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadState
from wattloop_operator.workloads.cluster_injection import ClusterAddresses
from wattloop_operator.workloads.injection_additions import injection_of
from wattloop_operator.workloads.ownership import controller_uid
from wattloop_operator.workloads.pod_state import moment
from wattloop_operator.workloads.pod_template import TemplateError, gpus, with_injection

SUCCEEDED = frozenset({"Completed", "Complete", "Succeeded"})
FAILED = frozenset({"Failed", "FailureTarget"})
RUNNING = frozenset({"Running", "Ready", "StartupPolicyCompleted"})
# Beside a pod template or a level above it, how often the kind starts it.
COUNTS = ("parallelism", "replicas", "numNodes")
DEEPEST = 20


def other_spec(
    job: RecurringTrainingJob, recurrence: TrainingRecurrence, addresses: ClusterAddresses
) -> dict[str, Any]:
    """The spec of an attempt's workload, with Wattloop's additions in every pod template.

    Raises:
        TemplateError: There is no pod template in it, or it cannot be started as it stands.
    """
    template = job.spec.template
    workload = template.workload
    if workload is None:
        raise TemplateError("spec.template.workload is missing")
    spec = copy.deepcopy(workload.spec)
    found = list(_pod_templates(spec, 1, 0))
    if not found:
        raise TemplateError(
            f"spec.template.workload: a {workload.kind} whose spec holds no pod template cannot be told its "
            "batch size; use a kind that holds pod templates, such as Job, JobSet or PyTorchJob"
        )
    names = template.training_containers
    injection = injection_of(job, recurrence, addresses, other_devices(spec, names))
    for each, _ in found:
        each.update(with_injection(each, _present(each, names), injection))
    return spec


def other_devices(spec: Mapping[str, Any], training_containers: tuple[str, ...] | None) -> int:
    """How many GPUs the training containers of all pod templates of a spec ask for.

    Raises:
        TemplateError: There is no such container.
    """
    return sum(
        count * gpus(each["spec"], _present(each, training_containers)) for each, count in _pod_templates(spec, 1, 0)
    )


def other_state(body: Mapping[str, Any], recurrence_uid: str) -> WorkloadState:
    """What is seen of a workload by the conventions of conditions."""
    metadata, status = body["metadata"], body.get("status") or {}
    holding = {
        str(each.get("type")): each for each in status.get("conditions") or () if str(each.get("status")) == "True"
    }
    phase, condition = WorkloadPhase.PENDING, None
    for types, found in (
        (FAILED, WorkloadPhase.FAILED),
        (SUCCEEDED, WorkloadPhase.SUCCEEDED),
        (RUNNING, WorkloadPhase.RUNNING),
    ):
        condition = next((holding[each] for each in types if each in holding), None)
        if condition is not None:
            phase = found
            break
    condition = condition or {}
    changed_at = moment(condition.get("lastTransitionTime"))
    return WorkloadState(
        name=str(metadata["name"]),
        api_version=str(body["apiVersion"]),
        kind=str(body["kind"]),
        uid=str(metadata.get("uid", "")),
        phase=phase,
        owned=controller_uid(metadata) == recurrence_uid,
        started_at=None if phase is WorkloadPhase.PENDING else moment(status.get("startTime")) or changed_at,
        ended_at=changed_at if phase.ended else None,
        ending=metadata.get("deletionTimestamp") is not None,
        failure=_failure(condition) if phase is WorkloadPhase.FAILED else None,
        message=": ".join(str(part) for part in (condition.get("reason"), condition.get("message")) if part),
    )


def _failure(condition: Mapping[str, Any]) -> Failure:
    said = f"{condition.get('reason', '')} {condition.get('message', '')}"
    if "DeadlineExceeded" in said:
        return Failure.DEADLINE
    return Failure.DISRUPTED if "DisruptionTarget" in said or "Evicted" in said else Failure.CRASHED


def _pod_templates(value: Any, count: int, depth: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The pod templates below a value, each with how many pods are made of it."""
    if depth > DEEPEST:
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
    """Those of the training containers that this template has: a launcher's has none of the workers'."""
    if names is None:
        return None
    there = {str(container.get("name")) for container in template["spec"]["containers"]}
    return [name for name in names if name in there]
