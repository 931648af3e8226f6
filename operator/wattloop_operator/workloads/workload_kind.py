"""The interface of a kind of workload, and what kinds have in common: pod templates, and conditions.

A kind is pure: it makes the spec of an attempt's workload from a template, and reads the phase of an object. Nothing
outside of this package knows a kind. `kinds.py` lists them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from wattloop.printable import printable
from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import training_containers
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.workloads.injection import Injection, TemplateError, gpus, with_injection
from wattloop_operator.workloads.ownership import GroupKind
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

Spec = dict[str, Any]
NO_WAIT = PodWait()


@dataclass(frozen=True)
class ObservedPhase:
    """The phase of a workload, as its object and its pods have it.

    Attributes:
        since: Since when, as far as the object says so.
        started_at: When the workload started, if its pods do not say so.
        message: What the object says of a failure or of an end.
        failure: Why the workload failed; None if it did not.
        wait: Why its pods do not run yet.
        suspended: Whether it is suspended, by its user or by a queue: it has no pods.
        may_run_again: Whether its controller may run it again although it has failed.
        backs_off: Whether its pods have ended and its controller waits before it creates others.
    """

    phase: WorkloadPhase
    since: datetime | None = None
    started_at: datetime | None = None
    message: str = ""
    failure: PodFailure | None = None
    wait: PodWait = NO_WAIT
    suspended: bool = False
    may_run_again: bool = False
    backs_off: bool = False


class RuntimeReference(NamedTuple):
    """A reference to a training runtime, of which a workload takes what its template does not have.

    Attributes:
        api_version: API version of its kind.
        namespaced: Whether it is in the namespace of the workload; otherwise it is the cluster's.
    """

    api_version: str
    kind: str
    name: str
    namespaced: bool


@dataclass(frozen=True)
class PodTemplate:
    """A pod template inside a spec.

    Attributes:
        value: The template, `{metadata, spec}`. A change of it changes the spec.
        count: How many pods of it run at a time.
    """

    value: dict[str, Any]
    count: int = 1

    def training_containers(self, names: Sequence[str] | None) -> list[str]:
        """Names of the training containers of this template: a launcher's template has none of the workers'.

        Args:
            names: The job's `trainingContainers`; None: the default of this template.
        """
        containers = [each for each in self.value["spec"]["containers"] if isinstance(each, dict)]
        return [str(each.get("name")) for each in training_containers(containers, names)]


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


class WorkloadKind:
    """What Wattloop knows of one kind of workload, mostly by the templates of the pods that train in its spec.

    Attributes:
        between: Kinds of the objects that may be between the workload and its training pods, by their controllers.
        patches: Fields of the spec that carry additions, of which a cluster knows one; empty: pod templates do.
        place: Where the spec has pod templates, for messages.
        conditions: The conditions of the kind.
    """

    between: frozenset[GroupKind] = frozenset()
    patches: tuple[str, ...] = ()
    place = "an object whose spec has containers"
    conditions = PhaseConditions(succeeded=frozenset(), failed=frozenset())

    def pod_templates(self, spec: Mapping[str, Any]) -> Iterable[PodTemplate]:  # noqa: ARG002
        """The templates of the training pods inside a spec, of which each has a list of containers."""
        return ()

    def switch_off_retries(self, spec: Spec) -> None:
        """Have a workload fail with its first pod, unless the user has chosen otherwise; the spec is changed."""

    def spec(self, template: Template, injection: Injection) -> Spec:
        """The spec of an attempt's workload: the user's, with the additions, and without retries of its own.

        Raises:
            TemplateError: The template cannot be started.
        """
        spec = template.spec.value
        pod_templates = list(self.pod_templates(spec))
        if not pod_templates:
            raise TemplateError(
                f"spec.template: the spec of this {template.kind} contains no pod template ({self.place}), so its pods "
                "cannot receive their batch size"
            )
        for each in pod_templates:
            names = each.training_containers(injection.training_containers)
            each.value.update(with_injection(each.value, names, injection))
        self.switch_off_retries(spec)
        return spec

    def devices(self, template: Template, names: Sequence[str] | None) -> int:
        """Number of GPUs that the training containers of all its pods request, by the job's `trainingContainers`.

        Raises:
            TemplateError: The template cannot be started.
        """
        pod_templates = self.pod_templates(template.spec.value)
        return sum(each.count * gpus(each.value["spec"], each.training_containers(names)) for each in pod_templates)

    def runtime(self, _template: Template) -> RuntimeReference | None:
        """The training runtime that a template refers to; None if it has all that is trained."""
        return None

    def training_containers(self, template: Template, names: Sequence[str] | None) -> list[str]:
        """Names of the containers that train, in their order, by the job's `trainingContainers`."""
        found = (each.training_containers(names) for each in self.pod_templates(template.spec.value))
        return list(dict.fromkeys(chain.from_iterable(found)))

    def pods(self, spec: Mapping[str, Any]) -> int:
        """How many pods a spec asks for at a time."""
        return sum(each.count for each in self.pod_templates(spec))

    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """The phase of an object of this kind."""
        suspended = bool(as_object(body.get("spec")).get("suspend"))
        return phase_by_conditions(body, pods, self.conditions, suspended=suspended)


def as_object(value: object) -> dict[str, Any]:
    """A value as an object; empty if it is none. No schema of this API bounds the fields of another kind."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> Iterator[dict[str, Any]]:
    """The items of a list as objects; none if it is no list."""
    return map(as_object, value if isinstance(value, list) else ())


def pod_template_in(owner: Mapping[str, Any]) -> dict[str, Any] | None:
    """The pod template of an object; None if it has no list of containers."""
    found = as_object(owner.get("template"))
    return found if isinstance(as_object(found.get("spec")).get("containers"), list) else None


def replicas_of(owner: Mapping[str, Any], name: str = "replicas") -> int:
    """A number of replicas; 1 if there is none."""
    found = owner.get(name)
    return max(found, 0) if type(found) is int else 1


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
    said = any(
        each.get("type") == "Suspended" and str(each.get("status")) == "True"
        for each in objects_in(status.get("conditions"))
    )
    if suspended and phase is WorkloadPhase.RUNNING and (said or not any_running(pods)):
        # Its last pods may still end, and a condition may be of the time before.
        phase, condition = WorkloadPhase.PENDING, {}
    since, text = time_of(condition.get("lastTransitionTime")), reason_and_message(condition)
    has_failed = phase is WorkloadPhase.FAILED
    failure = failure_of(text, pods, conditions.failure_without_pods) if has_failed else None
    return ObservedPhase(
        phase,
        since,
        started_at=time_of(status.get("startTime")) or since,
        message=text,
        failure=failure,
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
