"""Workloads in a queue of Kueue: whether one waits for quota, why and since when, and whether it was evicted.

Kueue suspends a workload that has the label of a queue, makes a Workload object of it, and resumes the workload when
that object is admitted. It evicts by suspending again: the pods are deleted, and the same workload may run once more
later. All of it holds for every kind that Kueue knows. The reasons of conditions differ between versions of Kueue and
are only shown, except that of a deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from wattloop.printable import printable
from wattloop_operator.api.template import PRIORITY_LABEL, QUEUE_LABEL, Template
from wattloop_operator.domain.snapshot import Failure, QueueWait, WorkloadPhase, WorkloadState
from wattloop_operator.workloads.injection import TemplateError
from wattloop_operator.workloads.pod_state import condition_of, one_word, time_of
from wattloop_operator.workloads.workload_kind import as_object, reason_and_message

GROUP = "kueue.x-k8s.io"
# The label of a Workload with the UID of what it was made of.
JOB_UID_LABEL = f"{GROUP}/job-uid"
# Part of the reason of an eviction at the end of the label max-exec-time-seconds.
TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
MAX_DEPTH = 20


def check_queue_labels(template: Template) -> None:
    """Check that only labels of the workload itself name a queue or a priority: a policy reads no others.

    Kueue up to 0.14 also takes the queue from an annotation.

    Raises:
        TemplateError: Something else does.
    """
    found = (
        ("spec.template.metadata", "annotation", template.metadata.annotations),
        *_named_in(template.spec.value, 0),
    )
    for place, kind, values in found:
        for name in (QUEUE_LABEL, PRIORITY_LABEL):
            if name in values:
                raise TemplateError(
                    f"{place}: found the {kind} {name}: {values[name]}; write it into spec.template.metadata.labels, "
                    "from where the whole workload gets it"
                )


def queue_of(body: Mapping[str, Any]) -> str:
    """The queue of a workload, which Kueue may have set itself; empty if it has none."""
    return str((body["metadata"].get("labels") or {}).get(QUEUE_LABEL, ""))


def is_suspended(body: Mapping[str, Any]) -> bool:
    """Whether a workload of any kind that Kueue knows is suspended.

    Example:
        >>> is_suspended({"spec": {"suspend": True}}), is_suspended({"spec": {"runPolicy": {"suspend": True}}})
        (True, True)
    """
    spec = as_object(body.get("spec"))
    return spec.get("suspend") is True or as_object(spec.get("runPolicy")).get("suspend") is True


def in_queue(
    state: WorkloadState,
    body: Mapping[str, Any],
    workload: Mapping[str, Any] | None,
    *,
    first_started: datetime | None,
    unknown: QueueWait | None = None,
) -> WorkloadState:
    """The state of a suspended workload that has a queue: it waits there, or was evicted after it had run.

    Args:
        state: Its state by its own conditions and pods.
        body: The workload.
        workload: The Workload object that Kueue made of it; None if there is none, or if it cannot be read.
        first_started: When the attempt started to run, if that was seen before.
        unknown: What is known of the wait without a Workload object.
    """
    started, found = first_started or state.started_at, workload or {}
    evicted_at = _evicted_at(body, found, started)
    if evicted_at is not None:
        return _evicted(state, found, evicted_at)
    wait = _wait(queue_of(body), found, body) if workload is not None else unknown
    return replace(
        state,
        phase=WorkloadPhase.PENDING,
        started_at=None,
        all_running_since=None,
        message="" if wait is None else str(wait),
        wait_reason="",
        # The Workload says whether it was evicted. Without one, that it is suspended after its start must do.
        suspended=state.suspended and workload is None,
        queue=wait,
    )


def created_at(body: Mapping[str, Any]) -> datetime | None:
    """When an object was created."""
    return time_of(body["metadata"].get("creationTimestamp"))


def _evicted_at(body: Mapping[str, Any], workload: Mapping[str, Any], started: datetime | None) -> datetime | None:
    """When a workload that had started was evicted; None if it had not started, or was not evicted.

    Pods may be seen to run before the workload is seen to be resumed. So a suspension counts only if Kueue calls it an
    eviction, or if it is later than the start.
    """
    if started is None:
        return None
    evicted, suspended = condition_of(workload, "Evicted"), condition_of(body, "Suspended")
    if _is_true(evicted):
        return _changed_at(evicted) or started
    since = _changed_at(suspended) if _is_true(suspended) else None
    return since if since is not None and since > started else None


def _evicted(state: WorkloadState, workload: Mapping[str, Any], at: datetime) -> WorkloadState:
    conditions = [each for kind in ("Evicted", "Preempted") if _is_true(each := condition_of(workload, kind))]
    texts = dict.fromkeys(_text(each) for each in conditions if each is not None)
    text = "; ".join(texts) or "it was suspended after its start"
    in_time = not any(TIME_EXCEEDED in each for each in texts)
    return replace(
        state,
        phase=WorkloadPhase.FAILED,
        all_running_since=None,
        ended_at=at,
        failure=Failure.DISRUPTED if in_time else Failure.DEADLINE,
        failed_pod=None,
        exit_code=None,
        message=f"its queue evicted it: {text}",
        may_run_again=True,
    )


def _wait(queue: str, workload: Mapping[str, Any], body: Mapping[str, Any]) -> QueueWait:
    """Why a workload waits, by the Workload object that Kueue made of it."""
    evicted, reserved = condition_of(workload, "Evicted"), condition_of(workload, "QuotaReserved")
    since = (_changed_at(evicted) if _is_true(evicted) else None) or created_at(workload) or created_at(body)
    name = str(workload["metadata"].get("name", ""))
    if as_object(workload.get("spec")).get("active") is False:
        text = (
            f"{_text(evicted)}; it is not admitted any more: correct the cause, then kubectl patch workload {name} "
            '--type=merge --patch \'{"spec":{"active":true}}\', or delete the TrainingRecurrence'
        )
        return QueueWait(queue, "Deactivated", text, since)
    admitted = condition_of(workload, "Admitted")
    if _is_true(admitted):
        text = (
            "Kueue has admitted it and not resumed it; if this persists, the versions of Kueue and of the controller "
            f"of {body.get('kind', 'Job')} do not fit together: run wattloop check, and see docs/kueue.md"
        )
        return QueueWait(queue, "Admitted", text, since)
    if _is_true(reserved):
        checks = "; ".join(_unready_checks(workload)) or "its quota is reserved, and it is about to start"
        return QueueWait(queue, "QuotaReserved", checks, since)
    if reserved is None:
        return QueueWait(queue, "Pending", _text(evicted) or "Kueue has not considered it yet", since)
    message = printable(str(reserved.get("message") or ""))
    text = "; ".join(filter(None, (message, _text(evicted) if _is_true(evicted) else "")))
    return QueueWait(queue, one_word(reserved.get("reason")), text, since)


def _unready_checks(workload: Mapping[str, Any]) -> Iterator[str]:
    checks = as_object(workload.get("status")).get("admissionChecks")
    for each in map(as_object, checks if isinstance(checks, list) else []):
        if each.get("state") != "Ready":
            message = f": {printable(str(each['message']))}" if each.get("message") else ""
            yield f"admission check {printable(str(each.get('name')))} is {printable(str(each.get('state')))}{message}"


def _named_in(value: Any, depth: int) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Labels and annotations of every object inside a spec; a TrainJob has some outside of its metadata."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        yield "spec.template.spec", "label", as_object(value.get("labels"))
        yield "spec.template.spec", "annotation", as_object(value.get("annotations"))
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _named_in(each, depth + 1)


def _is_true(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _changed_at(condition: Mapping[str, Any] | None) -> datetime | None:
    return None if condition is None else time_of(condition.get("lastTransitionTime"))


def _text(condition: Mapping[str, Any] | None) -> str:
    return "" if condition is None else reason_and_message(condition)
