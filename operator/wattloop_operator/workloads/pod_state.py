"""The state of pods: whether they run, why they wait, and why they failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from wattloop.printable import printable
from wattloop_operator.api.training_recurrence import IMAGE_DIGEST_PATTERN
from wattloop_operator.domain.snapshot import Failure, WorkloadPod
from wattloop_operator.workloads.container_status import container_statuses, output_of

Pod = Mapping[str, Any]

# Reasons that the kubelet and the control plane give to pods that they ended.
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
# Reasons of a container whose program never ran: its command is wrong, or what it needs is not in the image.
NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
# Reason of a container whose end the kubelet did not see, for example because the machine restarted.
END_NOT_SEEN = "ContainerStatusUnknown"
# Normal reasons to wait; if something is wrong, an Event of the pod has the cause.
NORMAL_WAITS = frozenset({"ContainerCreating", "PodInitializing"})
# Label that the Job controller gives to the pods of an indexed Job.
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
# Label of the pods of a JobSet. Its first Jobs may not train, as the initialisers of a TrainJob.
GLOBAL_JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-global-index"
# Labels of the pods of a PyTorchJob. A master has both. The index of the workers starts at 0 as well.
MASTER_LABEL = "training.kubeflow.org/job-role"
REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"
RAY_NODE_LABEL, RAY_HEAD = "ray.io/node-type", "head"
# Labels of the other pods of a training, each with the value that the first pod has: of a Job, of a PyTorchJob and
# of a Ray cluster.
RANK_0_LABELS = {INDEX_LABEL: "0", MASTER_LABEL: "master", REPLICA_INDEX_LABEL: "0", RAY_NODE_LABEL: RAY_HEAD}
# The kubelet writes this as the start of a container that never started.
NEVER = datetime.fromtimestamp(0, UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class PodFailure:
    """The failure of one pod.

    Attributes:
        failure: Its class.
        message: Its cause as text.
        pod: The pod; None before it is known.
        exit_code: Exit code of its container; None if no container's end is the failure.
        output: The termination message of that container.
        log: The command that shows the whole output; empty if the container never ran.
    """

    failure: Failure
    at: datetime
    message: str
    pod: WorkloadPod | None = None
    exit_code: int | None = None
    output: str = ""
    log: str = ""

    @property
    def ended_at(self) -> datetime | None:
        """Its time; None if that is not known."""
        return None if self.at == LATEST else self.at

    def caused_by(self, failure: Failure, message: str) -> PodFailure:
        """The same end of a pod, of which its workload names the cause."""
        return replace(self, failure=failure, message=message)


@dataclass(frozen=True)
class EndedContainer:
    """A container that has ended.

    Attributes:
        terminated: How it ended, by the pod's status.
        kind: What it is, as text.
        failure: The class of its failure, if its program was started.
    """

    name: str
    terminated: Mapping[str, Any]
    kind: str = "container"
    failure: Failure = Failure.CRASHED


@dataclass(frozen=True)
class PodWait:
    """Why a pod does not run yet.

    Attributes:
        reason: What hinders it, as one word of Kubernetes; empty if nothing is known to.
        message: The pod, its container and the details; empty if nothing is known.
    """

    reason: str = ""
    message: str = ""


def first_failure(pods: Iterable[Pod]) -> PodFailure | None:
    """The earliest failure: if one pod of several fails, the others fail as a consequence."""
    # In the same second a disruption takes precedence: a batch size is not blamed for what the
    # cluster did.
    order = {Failure.DISRUPTED: 0, Failure.CRASHED: 1, Failure.NOT_STARTED: 1, Failure.INIT_FAILED: 1}
    failures = [
        replace(failure, pod=workload_pod(pod)) for pod in pods for failure in [_failure(pod)] if failure is not None
    ]
    return min(failures, key=lambda each: (each.at, order.get(each.failure, 2)), default=None)


def without_restarts(pod: Pod, container: str) -> Pod:
    """A pod whose container counts as ended by its first failure, if the kubelet has started it again since then.

    Example:
        >>> crash = {"terminated": {"exitCode": 3}}
        >>> container = {"name": "node", "lastState": crash, "state": {"running": {}}}
        >>> without_restarts({"status": {"containerStatuses": [container]}}, "node")["status"]["containerStatuses"]
        [{'name': 'node', 'lastState': {'terminated': {'exitCode': 3}}, 'state': {'terminated': {'exitCode': 3}}}]
    """
    statuses = container_statuses(pod)
    if not any(_was_restarted(each, container) for each in statuses):
        return pod
    first = [{**each} | {"state": each["lastState"]} if _was_restarted(each, container) else each for each in statuses]
    return {**pod, "status": {**pod["status"], "containerStatuses": first}}


def _was_restarted(status: Mapping[str, Any], container: str) -> bool:
    crashed = ((status.get("lastState") or {}).get("terminated") or {}).get("exitCode")
    return status.get("name") == container and bool(crashed)


def started_at(pods: Iterable[Pod]) -> datetime | None:
    """Start time of the first container of the pods."""
    starts = [
        time_of(state.get("startedAt"))
        for pod in pods
        for status in container_statuses(pod)
        for state in _states(status)
    ]
    return min((start for start in starts if start is not None and start != NEVER), default=None)


def all_running_since(pods: Iterable[Pod], count: int) -> datetime | None:
    """Since when all containers run of as many pods; None if one waits, or if there are fewer pods.

    Pods that have succeeded count: they have nothing left to do.

    Args:
        pods: The pods of one workload, ended ones included.
        count: How many pods run at a time.
    """
    phases = [(pod, (pod.get("status") or {}).get("phase")) for pod in pods]
    running = (pod for pod, phase in phases if phase not in {"Succeeded", "Failed"})
    current = [pod for pod in running if (pod.get("metadata") or {}).get("deletionTimestamp") is None]
    if len(current) + sum(phase == "Succeeded" for _, phase in phases) < count:
        return None
    states = [status.get("state") or {} for pod in current for status in container_statuses(pod)]
    if any(not container_statuses(pod) for pod in current) or any("waiting" in state for state in states):
        return None
    starts = (time_of(state["running"].get("startedAt")) for state in states if state.get("running"))
    return max((start for start in starts if start is not None), default=None)


def parallelism(spec: Mapping[str, Any]) -> int:
    """How many pods of a Job run at a time.

    Example:
        >>> parallelism({}), parallelism({"parallelism": 4}), parallelism({"parallelism": 4, "completions": 2})
        (1, 4, 2)
    """
    found, completions = spec.get("parallelism"), spec.get("completions")
    count = max(found, 0) if isinstance(found, int) else 1
    return min(count, max(completions, 0)) if isinstance(completions, int) else count


def image_digest(pods: Iterable[Pod], container: str) -> str | None:
    """Digest of the image that a container of rank 0 runs; None if it is not known.

    Kubelets write `imageID` in several forms, such as `registry/image@sha256:…` and `sha256:…`. Other text is
    ignored.

    Args:
        pods: The pods of one workload.
        container: Name of the container.
    """
    first = first_pods(pods, lambda pod: any(each.get("name") == container for each in container_statuses(pod)))
    for pod in sorted(first, key=lambda each: str(each["metadata"].get("name"))):
        for status in container_statuses(pod):
            digest = str(status.get("imageID") or "").rpartition("@")[2]
            if status.get("name") == container and re.fullmatch(IMAGE_DIGEST_PATTERN, digest):
                return digest
    return None


def any_running(pods: Iterable[Pod]) -> bool:
    """Whether a pod runs."""
    return any((pod.get("status") or {}).get("phase") == "Running" for pod in pods)


def first_pods(pods: Iterable[Pod], trains: Callable[[Pod], bool]) -> list[Pod]:
    """The pods of rank 0: several if one replaces another, or if the pods of a training have no order.

    Args:
        pods: The pods of one workload.
        trains: Whether a pod has a training container, by the states of its containers.
    """
    # The first pod may start after the others: one without states counts until it is known whether it trains.
    found = [
        pod
        for pod in pods
        # Pods of a Job without indices run the same template, so each of them is as good.
        if all(str(_labels(pod).get(name, value)) == value for name, value in RANK_0_LABELS.items())
        and (trains(pod) or not (container_statuses(pod) or has_ended(pod)))
    ]
    first = min(map(_place, found), default=None)
    return [pod for pod in found if _place(pod) == first]


def _place(pod: Pod) -> tuple[bool, int]:
    """The place of a pod's group among the groups of its workload."""
    labels = _labels(pod)
    is_worker = REPLICA_INDEX_LABEL in labels and MASTER_LABEL not in labels
    return is_worker, _index(labels, GLOBAL_JOB_INDEX_LABEL) or 0


def _labels(pod: Pod) -> Mapping[str, Any]:
    return (pod.get("metadata") or {}).get("labels") or {}


def _index(labels: Mapping[str, Any], label: str) -> int | None:
    """The index that a label has; None if it has none."""
    text = str(labels.get(label, ""))
    return int(text) if text.isascii() and text.isdecimal() else None


def has_ended(pod: Pod) -> bool:
    """Whether all containers of a pod have ended, and none starts again."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def has_failed(pod: Pod) -> bool:
    """Whether all containers of a pod have ended, and one of them failed."""
    return (pod.get("status") or {}).get("phase") == "Failed"


def started_containers(pod: Pod) -> frozenset[str]:
    """Names of the containers that have run, so that they have a log."""
    return frozenset(str(status.get("name")) for status in container_statuses(pod) if _states(status))


def container_process(pod: Pod, container: str) -> str:
    """Identifies a container among all of its attempt: a container that is started again is another one."""
    restarts = [each.get("restartCount") or 0 for each in container_statuses(pod) if each.get("name") == container]
    return f"{pod['metadata']['uid']}/{next(iter(restarts), 0)}"


def pod_wait(pods: Iterable[Pod]) -> PodWait:
    """Why pods do not run yet; first what hinders one of them, then what is usual at a start."""
    waits = [wait for pod in pods for wait in _waits(pod)]
    return min(waits, key=lambda each: not each.reason, default=PodWait())


def unhealthy_devices(pods: Iterable[Pod]) -> str:
    """The unhealthy devices of the first pod that has any; empty for none. Kubernetes reports them from 1.36 on."""
    return next((text for pod in pods for text in [_unhealthy(pod)] if text), "")


def condition_of(body: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The condition of this type in an object's status; None if there is none."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), None)


def time_of(text: object) -> datetime | None:
    """A timestamp of the Kubernetes API; None if it is absent, or if it is none: other kinds may have any text."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def one_word(reason: object) -> str:
    """A reason in the form that a condition allows."""
    text = str(reason)
    return text if re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,63}", text) else "Waiting"


def _waits(pod: Pod) -> Iterator[PodWait]:
    status, name = pod.get("status") or {}, (pod.get("metadata") or {}).get("name", "")
    if has_ended(pod):
        return
    containers = (*(status.get("initContainerStatuses") or ()), *container_statuses(pod))
    waits = [(each, (each.get("state") or {}).get("waiting") or {}) for each in containers]
    for container, waiting in waits:
        if waiting.get("reason") and waiting["reason"] not in NORMAL_WAITS:
            text = f"pod {name}: container {container.get('name')}: {waiting['reason']}"
            yield PodWait(one_word(waiting["reason"]), _joined(text, _with_image(container, waiting)))
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        reason = str(scheduled.get("reason") or "Unschedulable")
        yield PodWait(one_word(reason), _joined(f"pod {name}: {reason}", scheduled.get("message")))
    for container, waiting in waits:
        if waiting.get("reason") in NORMAL_WAITS:
            describe = f"kubectl describe pod {name}"
            yield PodWait(
                "", f"container {container.get('name')}: {waiting['reason']}; if this persists, see {describe}"
            )


def _with_image(container: Mapping[str, Any], waiting: Mapping[str, Any]) -> str:
    """The kubelet's message about a container that waits, with its image if that matters and is not named."""
    message = printable(str(waiting.get("message") or "").strip())
    image = str(container.get("image") or "")
    named = "Image" not in str(waiting.get("reason")) or image in message
    return message if named else ": ".join(filter(None, (f"image {printable(image)}", message)))


def _failure(pod: Pod) -> PodFailure | None:
    status, metadata = pod.get("status") or {}, pod.get("metadata") or {}
    name = metadata.get("name", "")
    target = condition_of(pod, DISRUPTION_TARGET)
    if target is not None and target.get("status") == "True":
        text = _joined(f"pod {name}: {target.get('reason') or DISRUPTION_TARGET}", target.get("message"))
        return PodFailure(Failure.DISRUPTED, time_of(target.get("lastTransitionTime")) or LATEST, text)
    if status.get("reason") in DISRUPTIONS:
        ended = _ended(container_statuses(pod))
        at = min((time_of(each.terminated.get("finishedAt")) or LATEST for each in ended), default=LATEST)
        return PodFailure(Failure.DISRUPTED, at, _joined(f"pod {name}: {status['reason']}", status.get("message")))
    if status.get("reason") == "DeadlineExceeded":
        return PodFailure(Failure.DEADLINE, LATEST, f"pod {name}: it exceeded its activeDeadlineSeconds")
    failed = _failed_container(pod)
    if failed is not None and metadata.get("deletionTimestamp") is None:
        return _container_failure(pod, failed)
    if status.get("phase") == "Failed":
        text = _joined(f"pod {name}: {status.get('reason') or 'it was ended'}", status.get("message"))
        return PodFailure(Failure.DISRUPTED, LATEST, text)
    return None


def _failed_container(pod: Pod) -> EndedContainer | None:
    """The container whose failure ended a pod: the one that failed first, or an init container before them.

    Init containers run one after another, so it is the last that ran. Those before it have succeeded, or run beside
    it and were ended with the pod.
    """
    status = pod.get("status") or {}
    crashes = [each for each in _ended(container_statuses(pod)) if each.terminated.get("exitCode") != 0]
    if crashes:
        return min(crashes, key=lambda each: time_of(each.terminated.get("finishedAt")) or LATEST)
    if status.get("phase") != "Failed" or started_containers(pod):
        return None
    last = next(reversed(_ended(status.get("initContainerStatuses") or ())), None)
    if last is None or last.terminated.get("exitCode") == 0 or last.terminated.get("reason") == END_NOT_SEEN:
        return None
    return replace(last, kind="init container", failure=Failure.INIT_FAILED)


def _ended(containers: Iterable[Mapping[str, Any]]) -> list[EndedContainer]:
    states = ((each, (each.get("state") or {}).get("terminated")) for each in containers)
    return [EndedContainer(str(each.get("name")), terminated) for each, terminated in states if terminated]


def _container_failure(pod: Pod, container: EndedContainer) -> PodFailure:
    """The failure of a container that ended with an exit code or a signal, or that could not be started."""
    metadata, unhealthy, terminated = pod.get("metadata") or {}, _unhealthy(pod), container.terminated
    name, started = container.name, terminated.get("reason") not in NOT_STARTED
    # Of an indexed Job, which is the rank of its process unless it starts several.
    index = _labels(pod).get(INDEX_LABEL)
    indexed = "" if index is None else f"pod {metadata.get('name', '')} of index {index}: "
    text = f"{indexed}{_crash(f'{container.kind} {name}', terminated)}"
    failure = container.failure if started else Failure.NOT_STARTED
    place = " ".join(filter(None, (f"-n {metadata['namespace']}" if metadata.get("namespace") else "", f"-c {name}")))
    return PodFailure(
        # A batch size is not blamed for a broken device.
        Failure.DISRUPTED if unhealthy else failure,
        time_of(terminated.get("finishedAt")) or LATEST,
        "; ".join(filter(None, (unhealthy, text))),
        exit_code=terminated.get("exitCode"),
        output=output_of(terminated) if started else "",
        log=f"kubectl logs {metadata.get('name', '')} {place}" if started else "",
    )


def workload_pod(pod: Pod) -> WorkloadPod:
    """What the state of a workload says of a pod."""
    metadata = pod.get("metadata") or {}
    return WorkloadPod(
        name=str(metadata.get("name") or ""),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        index=_index(_labels(pod), INDEX_LABEL),
        uid=str(metadata.get("uid") or ""),
    )


def _crash(container: str, terminated: Mapping[str, Any]) -> str:
    code = terminated.get("exitCode")
    if terminated.get("reason") == OUT_OF_MEMORY:
        return f"{container} ran out of memory (OOMKilled, exit code {code}); raise its memory limit"
    if terminated.get("reason") in NOT_STARTED:
        refusal = printable(str(terminated.get("message") or "").strip())
        return _joined(f"{container} could not be started ({terminated['reason']})", refusal)
    signal = terminated.get("signal")
    how = f"signal {signal}" if signal else f"exit code {code}"
    reason = terminated.get("reason")
    return printable(f"{container} ended with {how}" + (f" ({reason})" if reason else ""))


def _unhealthy(pod: Pod) -> str:
    devices = [
        f"{status.get('name')} {resource.get('resourceID')}"
        for container in container_statuses(pod)
        for status in container.get("allocatedResourcesStatus") or ()
        for resource in status.get("resources") or ()
        if resource.get("health") == "Unhealthy"
    ]
    return f"pod {(pod.get('metadata') or {}).get('name', '')}: unhealthy: {', '.join(devices)}" if devices else ""


def _states(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    both = (status.get("lastState") or {}, status.get("state") or {})
    return [state[kind] for state in both for kind in ("running", "terminated") if state.get(kind)]


def _joined(text: str, message: object) -> str:
    return printable(f"{text}: {str(message).strip()}" if message else text)
