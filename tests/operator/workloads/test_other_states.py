"""The state of a workload of another kind than Job, from its conditions and its pods."""

from datetime import datetime
from typing import Any

import pytest

from wattloop_operator.api.template import Template
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadPod, WorkloadState
from wattloop_operator.workloads.kinds import OTHER
from wattloop_operator.workloads.workload_state import state_of

EARLY, LATE = "2026-03-01T10:00:05Z", "2026-03-01T10:00:09Z"
POD_TEMPLATE = {"spec": {"containers": [{"name": "proxy"}, {"name": "train"}]}}
JOBS = [
    {"name": "first", "replicas": 1, "template": {"spec": {"parallelism": 2, "template": POD_TEMPLATE}}},
    {"name": "second", "replicas": 2, "template": {"spec": {"template": POD_TEMPLATE}}},
]
DIGEST = "sha256:" + "0123456789abcdef" * 4


def workload(*conditions: dict[str, Any], pods: int = 2, **spec: Any) -> dict[str, Any]:
    owner = {"kind": "TrainingRecurrence", "name": "a", "uid": "recurrence-uid", "controller": True}
    jobs = [{"replicas": 1, "template": {"spec": {"parallelism": pods, "template": POD_TEMPLATE}}}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "a", "uid": "u", "ownerReferences": [owner]},
        "spec": {"replicatedJobs": jobs, **spec},
        "status": {"conditions": [{"status": "True", "lastTransitionTime": LATE} | each for each in conditions]},
    }


def pod(name: str, phase: str, state: dict[str, Any], *, job: str = "a-0", index: int | None = None) -> dict[str, Any]:
    labels = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"{job}-uid", "controller": True}
    containers = [{"name": "train", "imageID": DIGEST, "state": state}]
    return {
        "metadata": {"name": name, "uid": f"{name}-uid", "labels": labels, "ownerReferences": [owner]},
        "spec": {"nodeName": "gpu-7"},
        "status": {"phase": phase, "containerStatuses": containers},
    }


def runs(name: str, since: str = EARLY, **more: Any) -> dict[str, Any]:
    return pod(name, "Running", {"running": {"startedAt": since}}, **more)


def failed(name: str, at: str = EARLY, exit_code: int = 3, **more: Any) -> dict[str, Any]:
    return pod(name, "Failed", {"terminated": {"exitCode": exit_code, "startedAt": EARLY, "finishedAt": at}}, **more)


WAITS = pod("w", "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}})


def state_by_convention(body: dict[str, Any], *pods: dict[str, Any]) -> WorkloadState:
    return state_of(OTHER, body, pods, "recurrence-uid", "train")


@pytest.mark.parametrize(
    ("conditions", "phase", "failure"),
    [
        ([], WorkloadPhase.PENDING, None),
        ([("Running", "True", "")], WorkloadPhase.RUNNING, None),
        ([("Running", "False", ""), ("Succeeded", "True", "")], WorkloadPhase.SUCCEEDED, None),
        ([("Completed", "True", "AllJobsCompleted")], WorkloadPhase.SUCCEEDED, None),
        ([("Failed", "True", "FailedJobs")], WorkloadPhase.FAILED, Failure.CRASHED),
        ([("Failed", "True", "DeadlineExceeded")], WorkloadPhase.FAILED, Failure.DEADLINE),
        ([("Failed", "True", "Evicted")], WorkloadPhase.FAILED, Failure.DISRUPTED),
    ],
)
def test_without_pods_the_conditions_alone_give_the_state(
    conditions: list[tuple[str, str, str]], phase: WorkloadPhase, failure: Failure | None
) -> None:
    state = state_by_convention(
        workload(*({"type": kind, "status": status, "reason": text} for kind, status, text in conditions))
    )
    assert (state.phase, state.failure, state.owned, state.kind) == (phase, failure, True, "JobSet")
    assert (state.all_running_since is not None) is (phase is WorkloadPhase.RUNNING)


@pytest.mark.parametrize(
    ("conditions", "pods", "phase", "since"),
    [
        # A JobSet has no condition for running.
        ([], [runs("a", EARLY), runs("b", LATE)], WorkloadPhase.RUNNING, LATE),
        ([], [runs("a", EARLY)], WorkloadPhase.RUNNING, None),
        ([], [runs("a", EARLY), WAITS], WorkloadPhase.RUNNING, None),
        ([], [WAITS], WorkloadPhase.PENDING, None),
        # Kubeflow's operator sets it once the master runs.
        ([{"type": "Running"}], [runs("a", EARLY), WAITS], WorkloadPhase.RUNNING, None),
        ([{"type": "Running"}], [runs("a", EARLY), runs("b", EARLY)], WorkloadPhase.RUNNING, EARLY),
        ([{"type": "Completed"}], [runs("a", EARLY), runs("b", EARLY)], WorkloadPhase.SUCCEEDED, None),
    ],
)
def test_the_processes_run_since_the_last_pod_runs(
    conditions: list[dict[str, Any]], pods: list[dict[str, Any]], phase: WorkloadPhase, since: str | None
) -> None:
    state = state_by_convention(workload(*conditions), *pods)
    expected = None if since is None else datetime.fromisoformat(since)
    assert (state.phase, state.all_running_since) == (phase, expected)
    assert state.started_at == (None if pods == [WAITS] else datetime.fromisoformat(EARLY))


def test_pods_and_image_are_in_the_state() -> None:
    state = state_by_convention(workload(), runs("a", index=0), runs("b", index=1))
    assert state.pods == (WorkloadPod("a", "gpu-7", 0, "a-uid"), WorkloadPod("b", "gpu-7", 1, "b-uid"))
    assert state.image_digest == DIGEST


def test_an_index_that_two_jobs_of_a_job_set_count_names_no_pod() -> None:
    state = state_by_convention(workload(), runs("a", job="first", index=0), failed("b", job="second", index=0))
    assert [pod.index for pod in state.pods] == [None, None]
    # A replacement of the same Job has the index of the pod that it replaces.
    state = state_by_convention(workload(), failed("a", index=1), runs("b", index=1))
    assert [pod.index for pod in state.pods] == [1, 1]


FAILURE = {"type": "Failed", "reason": "FailedJobs", "message": "jobset failed due to one or more job failures"}


@pytest.mark.parametrize(
    ("condition", "pods", "failure", "message", "first"),
    [
        (
            FAILURE,
            [failed("a", LATE), failed("b", EARLY, 7)],
            Failure.CRASHED,
            "ended with exit code 7; FailedJobs",
            "b",
        ),
        (FAILURE, [failed("a", EARLY, 137, index=1)], Failure.CRASHED, "pod a of index 1: container train", "a"),
        (FAILURE | {"reason": "Evicted"}, [failed("a")], Failure.DISRUPTED, "Evicted", "a"),
        (FAILURE | {"reason": "DeadlineExceeded"}, [failed("a")], Failure.DEADLINE, "DeadlineExceeded", None),
        (FAILURE, [runs("a")], Failure.CRASHED, "FailedJobs: jobset failed", None),
    ],
)
def test_a_failure_names_its_first_pod_and_the_cause(
    condition: dict[str, Any], pods: list[dict[str, Any]], failure: Failure, message: str, first: str | None
) -> None:
    state = state_by_convention(workload(condition), *pods)
    assert (state.failure, state.failed_pod and state.failed_pod.name) == (failure, first)
    assert message in state.message


@pytest.mark.parametrize(
    ("body", "pods", "message"),
    [
        (workload(), [WAITS], "pod w: container train: ImagePullBackOff: Back-off"),
        (workload(), [], "its JobSet has no pod yet; if this persists, see kubectl describe jobset a"),
        (workload(suspend=True), [], "its JobSet is suspended (spec.suspend)"),
    ],
)
def test_a_workload_that_waits_says_for_what(body: dict[str, Any], pods: list[dict[str, Any]], message: str) -> None:
    assert state_by_convention(body, *pods).message == message


def test_the_pods_of_all_templates_are_counted() -> None:
    assert OTHER.pods({"replicatedJobs": JOBS}) == 4
    assert OTHER.pods({"pytorchReplicaSpecs": {"Master": {"template": POD_TEMPLATE}}}) == 1


@pytest.mark.parametrize("wrong", ["x", 5, True, [], {}, ["x"], [None], [{"type": {}, "status": "True"}], {"x": 5}])
@pytest.mark.parametrize("field", ["spec", "status", "conditions", "lastTransitionTime"])
def test_a_status_or_a_spec_of_wrong_types_is_a_workload_that_waits_or_ends(field: str, wrong: object) -> None:
    body = workload({"type": "Completed"})
    parent = {"conditions": body["status"], "lastTransitionTime": body["status"]["conditions"][0]}.get(field, body)
    parent[field] = wrong
    ends = field in {"spec", "lastTransitionTime"}
    state = state_by_convention(body)
    assert state.phase is (WorkloadPhase.SUCCEEDED if ends else WorkloadPhase.PENDING)
    assert (state.ended_at is None) == (field != "spec")


@pytest.mark.parametrize(("named", "found"), [(None, "proxy"), (("train",), "train"), (("other",), "")])
def test_the_training_container_is_the_first_named_one(named: tuple[str, ...] | None, found: str) -> None:
    template = Template.from_wire({"apiVersion": "x/v1", "kind": "X", "spec": {"replicatedJobs": JOBS}})
    assert next(iter(OTHER.training_containers(template, named)), "") == found
