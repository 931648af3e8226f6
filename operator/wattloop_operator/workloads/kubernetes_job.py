"""batch/v1 Job: its spec from the template, and its phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wattloop.printable import printable
from wattloop_operator.api.template import Template
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.workloads.injection import Injection, check_output_volume
from wattloop_operator.workloads.pod_state import (
    DISRUPTION_TARGET,
    LATEST,
    Pod,
    PodFailure,
    PodWait,
    any_running,
    condition_of,
    first_failure,
    has_failed,
    parallelism,
    pod_wait,
    time_of,
)
from wattloop_operator.workloads.workload_kind import ObservedPhase, PodTemplate, Spec, WorkloadKind, pod_template_in

# The Job outlives its pods, so the rule records in the Job that the cluster disrupted it.
DISRUPTION_RULE = {"action": "FailJob", "onPodConditions": [{"type": DISRUPTION_TARGET, "status": "True"}]}
BACK_OFF = PodWait("", "a pod failed, and its Job creates another after a back-off, as its backoffLimit allows")


class KubernetesJob(WorkloadKind):
    """Jobs. Their containers need a volume for their models, too.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "proxy"}, {"name": "train"}]}}
        >>> KubernetesJob().training_containers(Template(spec={"template": pod}), ("train",))
        ['train']
    """

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
        """See `WorkloadKind`."""
        found = pod_template_in(spec)
        if found is not None:
            yield PodTemplate(found, parallelism(spec))

    def switch_off_retries(self, spec: Spec) -> None:
        """See `WorkloadKind`."""
        switch_off_retries(spec)

    def spec(self, template: Template, injection: Injection) -> Spec:
        """See `WorkloadKind`."""
        check_output_volume(template.spec.value["template"]["spec"], injection)
        return super().spec(template, injection)

    def pods(self, spec: Mapping[str, Any]) -> int:
        """See `WorkloadKind`."""
        return parallelism(spec)

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""
        status = body.get("status") or {}
        failed, complete = _true_condition(body, "Failed"), _true_condition(body, "Complete")
        started = time_of(status.get("startTime"))
        if complete is not None:
            ended = time_of(status.get("completionTime")) or time_of(complete.get("lastTransitionTime"))
            return ObservedPhase(WorkloadPhase.SUCCEEDED, ended, started)
        if failed is not None:
            ended = time_of(failed.get("lastTransitionTime"))
            return ObservedPhase(WorkloadPhase.FAILED, ended, started, failure=_failure(failed, pods))
        suspended = bool((body.get("spec") or {}).get("suspend"))
        # Its last pods may still end.
        is_taken = suspended and _true_condition(body, "Suspended") is not None
        if not is_taken and (any_running(pods) or status.get("ready")):
            return ObservedPhase(WorkloadPhase.RUNNING, started_at=started)
        if not suspended and _backs_off(body, pods):
            return ObservedPhase(WorkloadPhase.PENDING, wait=BACK_OFF, backs_off=True)
        return ObservedPhase(WorkloadPhase.PENDING, wait=_wait(suspended, pods), suspended=suspended)


def switch_off_retries(spec: Spec) -> None:
    """Have a Job fail with its first pod, unless the user has chosen otherwise: Wattloop retries with a new decision.

    Args:
        spec: The spec of a Job, which is changed.
    """
    pod_spec = spec["template"]["spec"]
    pod_spec.setdefault("restartPolicy", "Never")
    if "backoffLimit" not in spec and "backoffLimitPerIndex" not in spec:
        spec["backoffLimit"] = 0
        if "podFailurePolicy" not in spec and pod_spec["restartPolicy"] == "Never":
            spec["podFailurePolicy"] = {"rules": [DISRUPTION_RULE]}


def needs_pods(body: Mapping[str, Any], pods: Sequence[Pod]) -> bool:
    """Whether the cause of a Job's failure is in pods whose watch events have not arrived yet."""
    failed = _true_condition(body, "Failed")
    return failed is not None and _failure_of_job(failed) is None and first_failure(pods) is None


def _failure_of_job(failed: Mapping[str, Any]) -> PodFailure | None:
    """The cause as far as the Job's own condition gives it."""
    reason, message = failed.get("reason"), printable(str(failed.get("message") or ""))
    if reason == "DeadlineExceeded":
        return PodFailure(Failure.DEADLINE, LATEST, f"it exceeded its Job's activeDeadlineSeconds: {message}")
    if reason == "PodFailurePolicy" and DISRUPTION_TARGET in message:
        return PodFailure(Failure.DISRUPTED, LATEST, message)
    return None


def _failure(failed: Mapping[str, Any], pods: Sequence[Pod]) -> PodFailure:
    known, first = _failure_of_job(failed), first_failure(pods)
    if first is not None and (known is None or known.failure is first.failure is Failure.DISRUPTED):
        return first
    if known is not None:
        return known if first is None else first.caused_by(known.failure, known.message)
    gone = f"its pods are gone and left no record of how they ended ({failed.get('reason')})"
    return PodFailure(Failure.DISRUPTED, LATEST, printable(gone))


def _backs_off(body: Mapping[str, Any], pods: Sequence[Pod]) -> bool:
    """Whether a Job whose pods have failed will create others. Beyond its backoffLimit, it fails soon."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    uncounted = (status.get("uncountedTerminatedPods") or {}).values()
    others = any(status.get(name) for name in ("active", "ready", "succeeded", "failedIndexes")) or any(uncounted)
    decided = _true_condition(body, "FailureTarget") or _true_condition(body, "SuccessCriteriaMet")
    is_allowed = 0 < (status.get("failed") or 0) <= (spec.get("backoffLimit") or 0)
    return is_allowed and not others and decided is None and all(map(has_failed, pods))


def _wait(suspended: bool, pods: Sequence[Pod]) -> PodWait:
    if suspended:
        return PodWait("", "its Job is suspended (spec.suspend)")
    return pod_wait(pods) if pods else PodWait("", "its Job has no pod yet; if this persists, see kubectl describe job")


def _true_condition(body: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    condition = condition_of(body, kind)
    return condition if condition is not None and condition.get("status") == "True" else None
