"""The state of a Job and its pods, and the class of a failure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from wattloop_operator.api.training_recurrence import PodReference
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.workloads.job import job_state, needs_pods
from wattloop_operator.workloads.other_kind import other_state

EARLY, LATE = "2026-03-01T10:00:05Z", "2026-03-01T10:00:09Z"
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": LATE}
DISRUPTED_BY_POLICY = FAILED | {
    "reason": "PodFailurePolicy",
    "message": "Pod team/a has condition DisruptionTarget matching FailJob rule at index 0",
}


def job(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    owner = {"kind": "TrainingRecurrence", "name": "a", "uid": "recurrence-uid", "controller": True}
    return {
        "metadata": {"name": "a", "uid": "u", "ownerReferences": [owner]},
        "spec": {},
        "status": {"conditions": list(conditions), **status},
    }


def pod(name: str = "a-x", phase: str = "Failed", *, deleted: bool = False, **status: Any) -> dict[str, Any]:
    metadata = {"name": name} | ({"deletionTimestamp": LATE} if deleted else {})
    return {"metadata": metadata, "status": {"phase": phase, **status}}


def terminated(exit_code: int, at: str = EARLY, **more: Any) -> dict[str, Any]:
    state = {"exitCode": exit_code, "startedAt": "2026-03-01T10:00:00Z", "finishedAt": at, **more}
    return {"containerStatuses": [{"name": "train", "state": {"terminated": state}}]}


def target(reason: str, at: str = EARLY) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at}
    return {"conditions": [condition]}


def with_devices(status: dict[str, Any], **health: str) -> dict[str, Any]:
    (container,) = status["containerStatuses"]
    resources = [{"resourceID": f"GPU-{name}", "health": value} for name, value in health.items()]
    devices = [{"name": "nvidia.com/gpu", "resources": resources}]
    return {"containerStatuses": [container | {"allocatedResourcesStatus": devices}]}


@pytest.mark.parametrize(
    ("conditions", "pods", "failure", "message"),
    [
        ([FAILED], [pod(**terminated(3, reason="Error"))], Failure.CRASHED, "container train ended with exit code 3"),
        ([FAILED], [pod(**terminated(137, reason="OOMKilled"))], Failure.CRASHED, "ran out of memory"),
        ([FAILED], [pod(**terminated(139, signal=11))], Failure.CRASHED, "signal 11"),
        (
            [FAILED],
            [pod(**terminated(128, reason="StartError", message="exec: no such file"))],
            Failure.DISRUPTED,
            "container train could not be started (StartError): exec: no such file",
        ),
        (
            [FAILED],
            [pod(**with_devices(terminated(1), a="Healthy", b="Unhealthy"))],
            Failure.DISRUPTED,
            "pod a-x: unhealthy: nvidia.com/gpu GPU-b; container train ended with exit code 1",
        ),
        ([FAILED], [pod(**with_devices(terminated(1), a="Healthy", b="Unknown"))], Failure.CRASHED, "exit code 1"),
        ([FAILED], [pod(reason="Evicted", message="disk pressure")], Failure.DISRUPTED, "Evicted: disk pressure"),
        ([FAILED], [pod(**target("PreemptionByScheduler"))], Failure.DISRUPTED, "PreemptionByScheduler"),
        ([FAILED], [pod(**target("DeletionByTaintManager"), **terminated(143))], Failure.DISRUPTED, "TaintManager"),
        ([FAILED], [pod(reason="NodeLost")], Failure.DISRUPTED, "NodeLost"),
        ([FAILED], [pod(reason="UnexpectedAdmissionError", message="no GPU")], Failure.DISRUPTED, "no GPU"),
        ([FAILED], [], Failure.DISRUPTED, "its pods are gone"),
        ([DISRUPTED_BY_POLICY], [], Failure.DISRUPTED, "DisruptionTarget"),
        ([FAILED | {"reason": "DeadlineExceeded"}], [], Failure.DEADLINE, "activeDeadlineSeconds"),
        ([FAILED], [pod(reason="DeadlineExceeded")], Failure.DEADLINE, "activeDeadlineSeconds"),
    ],
)
def test_a_failure_has_the_class_of_its_cause(
    conditions: list[dict[str, Any]], pods: list[dict[str, Any]], failure: Failure, message: str
) -> None:
    state = job_state(job(*conditions), pods, "recurrence-uid")
    assert (state.phase, state.failure) == (WorkloadPhase.FAILED, failure)
    assert message in state.message
    assert state.ended_at == datetime(2026, 3, 1, 10, 0, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "second", "failure"),
    [
        (pod("a-1", **terminated(1, EARLY)), pod("a-2", **target("NodeDrain", LATE)), Failure.CRASHED),
        (pod("a-1", **terminated(1, LATE)), pod("a-2", **target("NodeDrain", EARLY)), Failure.DISRUPTED),
        (pod("a-1", **terminated(1, EARLY)), pod("a-2", **target("NodeDrain", EARLY)), Failure.DISRUPTED),
        (pod("a-1", **terminated(1, LATE)), pod("a-2", deleted=True, **terminated(143, EARLY)), Failure.CRASHED),
    ],
)
def test_the_first_of_several_failures_counts(first: dict[str, Any], second: dict[str, Any], failure: Failure) -> None:
    for pods in ([first, second], [second, first]):
        assert job_state(job(FAILED), pods, "recurrence-uid").failure is failure


@pytest.mark.parametrize(
    ("body", "pods", "phase", "message"),
    [
        (job(), [], WorkloadPhase.PENDING, "no pod yet"),
        (job() | {"spec": {"suspend": True}}, [], WorkloadPhase.PENDING, "suspended"),
        (job(), [pod(phase="Pending")], WorkloadPhase.PENDING, ""),
        (
            job(),
            [
                pod(
                    phase="Pending",
                    containerStatuses=[{"name": "t", "state": {"waiting": {"reason": "ContainerCreating"}}}],
                )
            ],
            WorkloadPhase.PENDING,
            "container t: ContainerCreating; if this persists, see kubectl describe pod a-x",
        ),
        (
            job(),
            [
                pod(
                    phase="Pending",
                    containerStatuses=[
                        {"name": "t", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                    ],
                )
            ],
            WorkloadPhase.PENDING,
            "container t: ImagePullBackOff: no such image",
        ),
        (
            job(),
            [
                pod(
                    phase="Pending",
                    conditions=[
                        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
                    ],
                )
            ],
            WorkloadPhase.PENDING,
            "Unschedulable: 0/3 nodes",
        ),
        (job(), [pod(phase="Running")], WorkloadPhase.RUNNING, ""),
        (job(ready=1, startTime=EARLY), [], WorkloadPhase.RUNNING, ""),
        (
            job({"type": "Complete", "status": "True", "lastTransitionTime": LATE}),
            [pod(phase="Succeeded", **terminated(0))],
            WorkloadPhase.SUCCEEDED,
            "",
        ),
        (job({"type": "SuccessCriteriaMet", "status": "True"}), [pod(phase="Running")], WorkloadPhase.RUNNING, ""),
    ],
)
def test_the_state_of_a_job_follows_from_its_conditions_and_pods(
    body: dict[str, Any], pods: list[dict[str, Any]], phase: WorkloadPhase, message: str
) -> None:
    state = job_state(body, pods, "recurrence-uid")
    assert state.phase is phase
    assert message in state.message
    if not message:
        assert state.message == ""


def test_a_job_started_when_its_first_container_did() -> None:
    state = job_state(job(FAILED, startTime="2026-03-01T09:00:00Z"), [pod(**terminated(1))], "recurrence-uid")
    assert state.started_at == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_a_container_that_was_never_started_did_not_start_in_1970() -> None:
    never = terminated(128, reason="StartError", startedAt="1970-01-01T00:00:00Z")
    state = job_state(job(startTime=EARLY), [pod(phase="Running", **never)], "recurrence-uid")
    assert state.started_at == datetime(2026, 3, 1, 10, 0, 5, tzinfo=UTC)


def test_an_object_without_the_recurrences_owner_reference_is_not_owned() -> None:
    assert job_state(job(), [], "recurrence-uid").owned
    assert not job_state(job(), [], "another-uid").owned
    assert not job_state({"metadata": {"name": "a"}}, [], "recurrence-uid").owned


@pytest.mark.parametrize(
    ("body", "pods", "needed"),
    [
        (job(FAILED), [], True),
        (job(FAILED), [pod(phase="Running")], True),
        (job(FAILED), [pod(**terminated(1))], False),
        (job(DISRUPTED_BY_POLICY), [], False),
        (job(), [], False),
    ],
)
def test_pods_are_needed_if_only_they_have_the_cause(
    body: dict[str, Any], pods: list[dict[str, Any]], needed: bool
) -> None:
    assert needs_pods(body, pods) is needed


@pytest.mark.parametrize(
    ("conditions", "phase", "failure"),
    [
        ([], WorkloadPhase.PENDING, None),
        ([("Running", "True", "")], WorkloadPhase.RUNNING, None),
        ([("Running", "False", ""), ("Succeeded", "True", "")], WorkloadPhase.SUCCEEDED, None),
        ([("Completed", "True", "AllJobsCompleted")], WorkloadPhase.SUCCEEDED, None),
        ([("Failed", "True", "FailedJobs")], WorkloadPhase.FAILED, Failure.CRASHED),
        ([("Failed", "True", "DeadlineExceeded")], WorkloadPhase.FAILED, Failure.DEADLINE),
    ],
)
def test_the_state_of_another_kind_follows_from_its_conditions(
    conditions: list[tuple[str, str, str]], phase: WorkloadPhase, failure: Failure | None
) -> None:
    written = [
        {"type": kind, "status": status, "reason": reason, "lastTransitionTime": LATE}
        for kind, status, reason in conditions
    ]
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"} | job(*written)
    state = other_state(body, "recurrence-uid")
    assert (state.phase, state.failure, state.owned, state.kind) == (phase, failure, True, "JobSet")


def test_an_unhealthy_device_is_named_while_its_training_runs() -> None:
    running = {"containerStatuses": [{"name": "train", "state": {"running": {}}}]}
    for health, message in (("Healthy", ""), ("Unhealthy", "pod a-x: unhealthy: nvidia.com/gpu GPU-a")):
        state = job_state(job(), [pod(phase="Running", **with_devices(running, a=health))], "recurrence-uid")
        assert (state.phase, state.message, state.unhealthy) == (WorkloadPhase.RUNNING, message, message)


def test_the_state_contains_the_pods_that_are_bound_to_a_node() -> None:
    bound, waits = pod("a-x", "Running"), pod("a-y", "Pending")
    bound["metadata"]["uid"], bound["spec"] = "pod-uid", {"nodeName": "node-1"}
    waits["metadata"]["uid"], waits["spec"] = "other-uid", {"nodeName": None}
    state = job_state(job(), [bound, waits, pod("a-z")], "recurrence-uid")
    assert state.pods == (PodReference(uid="pod-uid", node="node-1"),)
