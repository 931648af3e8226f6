"""What pods say of how they run, and of why they ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from wattloop_operator.api.training_recurrence import PodReference
from wattloop_operator.domain.snapshot import Failure

Pod = Mapping[str, Any]

# Reasons that the kubelet and the control plane give to a pod that they ended themselves.
DISRUPTIONS = frozenset(
    {
        "Evicted",
        "Preempting",
        "Preempted",
        "NodeLost",
        "NodeShutdown",
        "Shutdown",
        "Terminated",
        "DeletionByTaintManager",
    }
)
DISRUPTION_TARGET = "DisruptionTarget"
OUT_OF_MEMORY = "OOMKilled"
# Of a container whose program was never run: what it is told to run, not how it trains, is wrong.
NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
# While a container waits for one of these, nothing need be wrong; if something is, an Event of the pod says it.
ORDINARY_WAITS = frozenset({"ContainerCreating", "PodInitializing"})
# What a kubelet writes as the start of a container that never started.
NEVER = datetime.fromtimestamp(0, UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class PodFailure:
    """How one pod failed.

    Attributes:
        failure: Why.
        at: When.
        message: The same in words.
    """

    failure: Failure
    at: datetime
    message: str


def first_failure(pods: Iterable[Pod]) -> PodFailure | None:
    """The earliest failure: when one pod of several goes, the others fail in its wake."""
    # Of two at the same second the disruption counts: a batch size is not blamed for what the cluster did.
    order = {Failure.DISRUPTED: 0, Failure.CRASHED: 1}
    failures = [failure for failure in map(_failure, pods) if failure is not None]
    return min(failures, key=lambda each: (each.at, order.get(each.failure, 2)), default=None)


def started_at(pods: Iterable[Pod]) -> datetime | None:
    """When the first container of the pods started."""
    starts = [
        moment(state.get("startedAt"))
        for pod in pods
        for status in _container_statuses(pod)
        for state in _states(status)
    ]
    return min((start for start in starts if start is not None and start != NEVER), default=None)


def bound(pods: Iterable[Pod]) -> tuple[PodReference, ...]:
    """Those of the pods that a node was found for."""
    nodes = ((str(pod["metadata"].get("uid") or ""), (pod.get("spec") or {}).get("nodeName")) for pod in pods)
    return tuple(PodReference(uid=uid, node=str(node)) for uid, node in nodes if uid and node)


def any_runs(pods: Iterable[Pod]) -> bool:
    """Whether a pod runs."""
    return any((pod.get("status") or {}).get("phase") == "Running" for pod in pods)


def why_waiting(pods: Iterable[Pod]) -> str:
    """What keeps pods from running; empty where nothing is known to."""
    return next((reason for pod in pods for reason in _waits(pod)), "")


def what_is_unhealthy(pods: Iterable[Pod]) -> str:
    """Which devices that pods hold are unhealthy, as the kubelet says from Kubernetes 1.36 on; empty for none."""
    return next((text for pod in pods for text in [_unhealthy(pod)] if text), "")


def moment(text: object) -> datetime | None:
    """A time of the API."""
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None


def _waits(pod: Pod) -> Iterator[str]:
    status = pod.get("status") or {}
    if status.get("phase") in {"Succeeded", "Failed"}:
        return
    containers = (*(status.get("initContainerStatuses") or ()), *_container_statuses(pod))
    waits = [(each.get("name"), (each.get("state") or {}).get("waiting") or {}) for each in containers]
    for container, waiting in waits:
        if waiting.get("reason") and waiting["reason"] not in ORDINARY_WAITS:
            yield _joined(f"container {container}: {waiting['reason']}", waiting.get("message"))
    scheduled = _condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        yield _joined(str(scheduled.get("reason") or "Unschedulable"), scheduled.get("message"))
    for container, waiting in waits:
        if waiting.get("reason") in ORDINARY_WAITS:
            describe = f"kubectl describe pod {(pod.get('metadata') or {}).get('name', '')}"
            yield f"container {container}: {waiting['reason']}; {describe} says why if it stays so"


def _failure(pod: Pod) -> PodFailure | None:
    status, metadata = pod.get("status") or {}, pod.get("metadata") or {}
    name = metadata.get("name", "")
    target = _condition(pod, DISRUPTION_TARGET)
    if target is not None and target.get("status") == "True":
        text = _joined(f"pod {name}: {target.get('reason') or DISRUPTION_TARGET}", target.get("message"))
        return PodFailure(Failure.DISRUPTED, moment(target.get("lastTransitionTime")) or LATEST, text)
    ended = [
        (container, terminated)
        for container in _container_statuses(pod)
        for terminated in [(container.get("state") or {}).get("terminated")]
        if terminated
    ]
    if status.get("reason") in DISRUPTIONS:
        at = min((moment(terminated.get("finishedAt")) or LATEST for _, terminated in ended), default=LATEST)
        return PodFailure(Failure.DISRUPTED, at, _joined(f"pod {name}: {status['reason']}", status.get("message")))
    if status.get("reason") == "DeadlineExceeded":
        return PodFailure(Failure.DEADLINE, LATEST, f"pod {name}: it ran past its activeDeadlineSeconds")
    crashes = [(container, terminated) for container, terminated in ended if terminated.get("exitCode") != 0]
    if crashes and metadata.get("deletionTimestamp") is None:
        container, terminated = min(crashes, key=lambda each: moment(each[1].get("finishedAt")) or LATEST)
        at = moment(terminated.get("finishedAt")) or LATEST
        crash, unhealthy = _crash(str(container.get("name")), terminated), _unhealthy(pod)
        # A batch size is not blamed for a broken device, nor for a program that is not there.
        disrupted = unhealthy or terminated.get("reason") in NOT_STARTED
        return PodFailure(
            Failure.DISRUPTED if disrupted else Failure.CRASHED, at, "; ".join(filter(None, (unhealthy, crash)))
        )
    if status.get("phase") == "Failed":
        text = _joined(f"pod {name}: {status.get('reason') or 'it was ended'}", status.get("message"))
        return PodFailure(Failure.DISRUPTED, LATEST, text)
    return None


def _crash(container: str, terminated: Mapping[str, Any]) -> str:
    code = terminated.get("exitCode")
    if terminated.get("reason") == OUT_OF_MEMORY:
        return f"container {container} ran out of memory (OOMKilled, exit code {code}); raise its memory limit"
    if terminated.get("reason") in NOT_STARTED:
        return _joined(
            f"container {container} could not be started ({terminated['reason']})", terminated.get("message")
        )
    signal = terminated.get("signal")
    how = f"signal {signal}" if signal else f"exit code {code}"
    reason = terminated.get("reason")
    return _joined(
        f"container {container} ended with {how}" + (f" ({reason})" if reason else ""), terminated.get("message")
    )


def _unhealthy(pod: Pod) -> str:
    devices = [
        f"{status.get('name')} {resource.get('resourceID')}"
        for container in _container_statuses(pod)
        for status in container.get("allocatedResourcesStatus") or ()
        for resource in status.get("resources") or ()
        if resource.get("health") == "Unhealthy"
    ]
    return f"pod {(pod.get('metadata') or {}).get('name', '')}: unhealthy: {', '.join(devices)}" if devices else ""


def _container_statuses(pod: Pod) -> list[Mapping[str, Any]]:
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def _states(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    both = (status.get("lastState") or {}, status.get("state") or {})
    return [state[kind] for state in both for kind in ("running", "terminated") if state.get(kind)]


def _condition(pod: Pod, kind: str) -> Mapping[str, Any] | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), None)


def _joined(text: str, message: object) -> str:
    return f"{text}: {str(message).strip()}" if message else text
