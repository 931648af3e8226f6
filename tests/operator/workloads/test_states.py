"""The state of a Job and its pods, and the class of a failure."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.wire.undelivered_reports import joined_message
from wattloop_operator.api.template import Template
from wattloop_operator.cluster.informer.stored_parts import job_part
from wattloop_operator.domain.snapshot import Failure, UndeliveredReports, WorkloadPhase, WorkloadPod
from wattloop_operator.workloads.kinds import OTHER
from wattloop_operator.workloads.kubernetes_job import KubernetesJob, needs_pods
from wattloop_operator.workloads.workload_state import state_of

JOB = KubernetesJob()
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


def container(state: dict[str, Any], name: str = "train", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, **more}


def waits(reason: str, message: str = "", *, name: str = "a-x", phase: str = "Pending", **more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
    return pod(name, phase, containerStatuses=[container(state, **more)])


def runs(name: str, since: str, **more: Any) -> dict[str, Any]:
    return pod(name, "Running", containerStatuses=[container({"running": {"startedAt": since}})], **more)


CREATING = "ContainerCreating"
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


def init(*states: dict[str, Any], main: str = "waiting") -> dict[str, Any]:
    """Init containers, of which the last ran last, and the training container that waits for them."""
    statuses = [{"name": f"init-{index}", "state": state} for index, state in enumerate(states)]
    training = {"waiting": {"reason": "PodInitializing"}, "running": {"startedAt": EARLY}}[main]
    return {"initContainerStatuses": statuses, "containerStatuses": [{"name": "train", "state": {main: training}}]}


def init_end(exit_code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": exit_code, "reason": "Error", "finishedAt": EARLY, **more}}


INIT_WAITS = {"waiting": {"reason": "PodInitializing"}}


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
            Failure.NOT_STARTED,
            "container train could not be started (StartError): exec: no such file",
        ),
        (
            [FAILED],
            [pod(**with_devices(terminated(1), a="Healthy", b="Unhealthy"))],
            Failure.DISRUPTED,
            "pod a-x: unhealthy: nvidia.com/gpu GPU-b; container train ended with exit code 1",
        ),
        ([FAILED], [pod(**with_devices(terminated(1), a="Healthy", b="Unknown"))], Failure.CRASHED, "exit code 1"),
        (
            [FAILED],
            [pod(**init(init_end(0), init_end(3), INIT_WAITS))],
            Failure.INIT_FAILED,
            "init container init-1 ended with exit code 3 (Error)",
        ),
        # The first runs beside the second, and was ended with the pod.
        ([FAILED], [pod(**init(init_end(143), init_end(1)))], Failure.INIT_FAILED, "init container init-1 ended with"),
        (
            [FAILED],
            [pod(**init(init_end(137, reason="OOMKilled")))],
            Failure.INIT_FAILED,
            "init container init-0 ran out of memory (OOMKilled, exit code 137); raise its memory limit",
        ),
        (
            [FAILED],
            [pod(**init(init_end(128, reason="StartError", message="no curl")))],
            Failure.NOT_STARTED,
            "init container init-0 could not be started (StartError): no curl",
        ),
        ([FAILED], [pod(**init(init_end(3)), reason="Evicted", message="disk")], Failure.DISRUPTED, "Evicted: disk"),
        ([FAILED], [pod(**init(init_end(3)), **target("NodeDrain"))], Failure.DISRUPTED, "NodeDrain"),
        ([FAILED], [pod(**init(init_end(143)), deleted=True)], Failure.DISRUPTED, "pod a-x: it was ended"),
        ([FAILED], [pod(**init(init_end(137, reason="ContainerStatusUnknown")))], Failure.DISRUPTED, "it was ended"),
        # It has trained, and what ran beside it was ended.
        ([FAILED], [pod(**init(init_end(143), main="running"))], Failure.DISRUPTED, "it was ended"),
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
    state = state_of(JOB, job(*conditions), pods, "recurrence-uid")
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
        assert state_of(JOB, job(FAILED), pods, "recurrence-uid").failure is failure


def test_the_pod_that_failed_first_is_known_with_its_node_and_index() -> None:
    second, first = pod("a-1-x", **terminated(1, LATE)), pod("a-2-x", **terminated(137, EARLY))
    for index, each in ((1, second), (2, first)):
        each["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(index)}
        each["spec"] = {"nodeName": f"gpu-{index}"}
    state = state_of(JOB, job(FAILED), [second, first], "recurrence-uid")
    assert state.failed_pod == WorkloadPod("a-2-x", "gpu-2", 2)


@pytest.mark.parametrize(
    ("body", "pods", "phase", "message"),
    [
        (job(), [], WorkloadPhase.PENDING, "no pod yet"),
        (job() | {"spec": {"suspend": True}}, [], WorkloadPhase.PENDING, "suspended"),
        (job(), [pod(phase="Pending")], WorkloadPhase.PENDING, ""),
        (
            job(),
            [waits(CREATING)],
            WorkloadPhase.PENDING,
            "container train: ContainerCreating; if this persists, see kubectl describe pod a-x",
        ),
        (job(), [pod(phase="Pending", conditions=[UNSCHEDULABLE])], WorkloadPhase.PENDING, "Unschedulable: 0/3 nodes"),
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
    state = state_of(JOB, body, pods, "recurrence-uid")
    assert state.phase is phase
    assert message in state.message
    if not message:
        assert state.message == ""


@pytest.mark.parametrize(
    ("limit", "changes", "phase", "backs_off"),
    [
        (2, {}, "Failed", True),
        (2, {"active": 1}, "Failed", False),
        (2, {"conditions": [{"type": "FailureTarget", "status": "True"}]}, "Failed", False),
        (2, {"uncountedTerminatedPods": {"failed": ["u"]}}, "Failed", False),
        (2, {}, "Succeeded", False),
        (1, {}, "Failed", False),
        (0, {}, "Failed", False),
    ],
)
def test_a_job_whose_backoff_limit_allows_another_pod_says_that_it_waits_for_it(
    limit: int, changes: dict[str, Any], phase: str, backs_off: bool
) -> None:
    body = job(failed=2) | {"spec": {"backoffLimit": limit}}
    body["status"] |= changes
    state = state_of(JOB, job_part(body), [pod(phase=phase)], "recurrence-uid")
    assert (state.phase, state.pods_ended) == (WorkloadPhase.PENDING, True)
    assert state.backs_off is ("a pod failed, and its Job creates another" in state.message) is backs_off


@pytest.mark.parametrize(
    ("phases", "ended"),
    [(["Succeeded"], True), (["Failed", "Succeeded"], True), (["Succeeded", "Running"], False), ([], False)],
)
def test_the_pods_of_a_job_may_have_ended_before_its_controller_says_so(phases: list[str], ended: bool) -> None:
    pods = [pod(f"a-{index}", phase) for index, phase in enumerate(phases)]
    state = state_of(JOB, job(), pods, "recurrence-uid")
    assert not state.phase.ended
    assert state.pods_ended is ended


@pytest.mark.parametrize(
    "text", ["\x1b[2J\r\n\u202e" * 200_000, "\x00" * 1_000_000, "\u2028\ud800" * 500_000], ids=["ansi", "nul", "lines"]
)
def test_a_megabyte_of_control_characters_in_a_status_is_a_bounded_printable_message(text: str) -> None:
    condition = {"type": "Failed", "status": "True", "reason": text, "message": text, "lastTransitionTime": None}
    pods = [
        pod(reason="Evicted", message=text),
        pod(reason=text, message=text),
        pod(**terminated(128, reason="StartError", message=text)),
        pod(**terminated(3, reason=text)),
        pod(**terminated(3), conditions=[condition | {"type": "DisruptionTarget"}]),
        pod(phase="Pending", conditions=[condition | {"type": "PodScheduled", "status": "False"}]),
    ]
    job = {"metadata": {"name": "a"}, "status": {"conditions": [condition | {"reason": "DeadlineExceeded"}]}}
    other = {**job, "apiVersion": "example.com/v1", "kind": "TrainSet", "status": {"conditions": [condition]}}
    states = [state_of(JOB, job, (), "uid"), state_of(OTHER, other, (), "uid")]
    states += [state_of(JOB, job | {"status": {"conditions": [condition]}}, [each], "uid") for each in pods[:-1]]
    states += [state_of(JOB, job | {"status": {}}, pods[-1:], "uid")]
    for state in states:
        assert state.message
        assert state.message.isprintable()
        assert len(state.message) < 30_000


def test_the_output_of_a_failed_container_is_its_termination_message_and_its_log_can_be_read() -> None:
    failed = pod(**terminated(1, message="ImportError: no torch"))
    failed["metadata"]["namespace"] = "team"
    state = state_of(JOB, job(FAILED), [failed], "recurrence-uid")
    assert (state.exit_code, state.output) == (1, "ImportError: no torch")
    assert state.log == "kubectl logs a-x -n team -c train"
    assert "ImportError" not in state.message
    state = state_of(JOB, job(FAILED), [pod(**init(init_end(3, message="cannot resolve")))], "recurrence-uid")
    assert (state.exit_code, state.output, state.log) == (3, "cannot resolve", "kubectl logs a-x -c init-0")


# A rank that was killed, as torchrun prints it.
KILLED = "  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 7)\n"


def test_undelivered_reports_in_a_termination_message_are_no_output() -> None:
    left = joined_message("ImportError: no torch", "c-jH#")
    state = state_of(JOB, job(FAILED), [pod(**terminated(1, message=left))], "recurrence-uid")
    assert state.output == "ImportError: no torch"
    assert state.undelivered == (UndeliveredReports("a-x", "None", "c-jH#"),)
    only = state_of(JOB, job(FAILED), [pod(**terminated(1, message=joined_message("", "c-jH#")))], "recurrence-uid")
    assert (only.output, only.killed_ranks) == ("", ())
    after = state_of(JOB, job(FAILED), [pod(**terminated(1, message=joined_message(KILLED, KILLED)))], "recurrence-uid")
    assert after.killed_ranks == (2,)


def test_each_container_of_each_pod_leaves_its_own_reports_also_before_it_was_started_again() -> None:
    def ended(text: str, start: str, end: str) -> dict[str, Any]:
        times = {"startedAt": f"2026-03-01T10:{start}Z", "finishedAt": f"2026-03-01T10:{end}Z"}
        return {"terminated": {"exitCode": 1, "message": joined_message("", text), **times}}

    first, second = ended("first", "00:00", "00:00"), ended("second", "00:00", "05:00")
    restarted = {"name": "train", "lastState": first, "state": second, "restartCount": 1}
    own = {"name": "second", "lastState": {}, "state": ended("own", "00:00", "07:00")}
    sidecar = {"name": "proxy", "state": {"running": {"startedAt": "2026-03-01T10:09:00Z"}}}
    runs_on = {"running": {"startedAt": "2026-03-01T10:08:00Z"}}
    again = {"name": "train", "lastState": ended("third", "06:00", "07:00"), "state": runs_on}
    pods = [
        pod("a-0", "Failed", containerStatuses=[restarted, own]),
        pod("a-1", "Running", containerStatuses=[sidecar, again]),
    ]
    found = state_of(JOB, job(), pods, "recurrence-uid").undelivered
    assert [(each.pod, each.packed, each.superseded) for each in found] == [
        ("a-0", "first", True), ("a-0", "second", True), ("a-0", "own", False), ("a-1", "third", True),
    ]  # fmt: skip
    (alone,) = state_of(
        JOB, job(), [pod("a-0", containerStatuses=[{"name": "train", "state": second}])], "u"
    ).undelivered
    assert not alone.superseded


IMAGE = "registry.example/train:1"


@pytest.mark.parametrize(
    ("waiting", "reason", "message"),
    [
        (("ErrImagePull", "not found"), "ErrImagePull", f"ErrImagePull: image {IMAGE}: not found"),
        (("ImagePullBackOff", f"Back-off {IMAGE}"), "ImagePullBackOff", f"ImagePullBackOff: Back-off {IMAGE}"),
        (("InvalidImageName", ""), "InvalidImageName", f"InvalidImageName: image {IMAGE}"),
        (("CreateContainerConfigError", "no secret"), "CreateContainerConfigError", "Error: no secret"),
        (("ContainerCreating", ""), "", "ContainerCreating; if this persists, see kubectl describe pod a-1"),
        (("not a word\n", "x"), "Waiting", "x"),
    ],
)
def test_what_hinders_a_pod_is_named_with_pod_container_and_image(
    waiting: tuple[str, str], reason: str, message: str
) -> None:
    # A pod that starts as usual does not hide one that cannot.
    pods = [waits(CREATING, name="a-0", image=IMAGE), waits(*waiting, name="a-1", image=IMAGE)]
    state = state_of(JOB, job(), pods, "recurrence-uid")
    assert state.wait_reason == reason
    assert state.message.startswith("pod a-1: container train: " if reason else "container train: ")
    if reason:
        assert message in state.message


def test_a_pod_without_a_node_is_named() -> None:
    state = state_of(JOB, job(), [pod(phase="Pending", conditions=[UNSCHEDULABLE])], "recurrence-uid")
    assert (state.wait_reason, state.message) == ("Unschedulable", "pod a-x: Unschedulable: 0/3 nodes")


def test_a_job_started_when_its_first_container_did() -> None:
    state = state_of(JOB, job(FAILED, startTime="2026-03-01T09:00:00Z"), [pod(**terminated(1))], "recurrence-uid")
    assert state.started_at == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_a_container_that_was_never_started_did_not_start_in_1970() -> None:
    never = terminated(128, reason="StartError", startedAt="1970-01-01T00:00:00Z")
    state = state_of(JOB, job(startTime=EARLY), [pod(phase="Running", **never)], "recurrence-uid")
    assert state.started_at == datetime(2026, 3, 1, 10, 0, 5, tzinfo=UTC)


def test_an_object_without_the_recurrences_owner_reference_is_not_owned() -> None:
    assert state_of(JOB, job(), [], "recurrence-uid").owned
    assert not state_of(JOB, job(), [], "another-uid").owned
    assert not state_of(JOB, {"metadata": {"name": "a"}}, [], "recurrence-uid").owned


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


def test_an_unhealthy_device_is_named_while_its_training_runs() -> None:
    running = {"containerStatuses": [{"name": "train", "state": {"running": {}}}]}
    for health, message in (("Healthy", ""), ("Unhealthy", "pod a-x: unhealthy: nvidia.com/gpu GPU-a")):
        state = state_of(JOB, job(), [pod(phase="Running", **with_devices(running, a=health))], "recurrence-uid")
        assert (state.phase, state.message, state.unhealthy) == (WorkloadPhase.RUNNING, message, message)


@pytest.mark.parametrize(
    ("pods", "since"),
    [
        ([runs("a-0", EARLY), runs("a-1", LATE)], LATE),
        ([runs("a-0", EARLY), waits(CREATING, name="a-1")], None),
        ([runs("a-0", EARLY), waits(CREATING, name="a-1", phase="Running")], None),
        ([runs("a-0", EARLY), pod("a-1", "Pending")], None),
        ([runs("a-0", EARLY)], None),
        ([runs("a-0", EARLY), pod("a-1", "Succeeded", **terminated(0))], EARLY),
        ([runs("a-0", EARLY), pod("a-1", **terminated(1)), waits(CREATING, name="a-2")], None),
        ([runs("a-0", EARLY), pod("a-1", **terminated(1)), runs("a-2", LATE)], LATE),
        ([runs("a-0", EARLY), runs("a-1", EARLY, deleted=True), runs("a-2", LATE)], LATE),
        ([runs("a-0", EARLY), runs("a-1", EARLY, deleted=True)], None),
    ],
)
def test_all_processes_run_once_the_last_container_of_all_pods_runs(
    pods: list[dict[str, Any]], since: str | None
) -> None:
    state = state_of(JOB, job() | {"spec": {"parallelism": 2}}, pods, "recurrence-uid")
    assert state.all_running_since == (None if since is None else datetime.fromisoformat(since))


def test_the_state_contains_the_pods_that_are_bound_to_a_node() -> None:
    bound, waits = pod("a-x", "Running"), pod("a-y", "Pending")
    bound["metadata"]["uid"], bound["spec"] = "pod-uid", {"nodeName": "node-1"}
    waits["metadata"]["uid"], waits["spec"] = "other-uid", {"nodeName": None}
    state = state_of(JOB, job(), [bound, waits, pod("a-z")], "recurrence-uid")
    assert state.pods == (WorkloadPod("a-x", "node-1", uid="pod-uid"),)


DIGEST = "sha256:" + "0123456789abcdef" * 4
OTHER_DIGEST = "sha256:" + "f" * 64


def runs_image(image_id: object, *, name: str = "a-x", container: str = "train", index: str | None = None) -> Any:
    found = pod(name, "Running", containerStatuses=[{"name": container, "imageID": image_id}])
    found["metadata"]["labels"] = {} if index is None else {"batch.kubernetes.io/job-completion-index": index}
    return found


def image_of(*pods: dict[str, Any]) -> str | None:
    return state_of(JOB, job(), pods, "recurrence-uid", "train").image_digest


@pytest.mark.parametrize(
    ("image_id", "digest"),
    [
        (DIGEST, DIGEST),
        (f"docker.io/library/digits@{DIGEST}", DIGEST),
        (f"docker-pullable://registry:5000/digits:1@{DIGEST}", DIGEST),
        ("sha512:" + "0" * 128, "sha512:" + "0" * 128),
        ("", None),
        (None, None),
        (7, None),
        ("docker.io/library/digits:1", None),
        (DIGEST[:-1], None),
        (DIGEST + "0", None),
        (DIGEST + "\n", None),
        (DIGEST.upper(), None),
        (f"{DIGEST}@digits", None),
    ],
)
def test_the_digest_of_an_image_is_read_from_every_form_that_kubelets_write(
    image_id: object, digest: str | None
) -> None:
    assert image_of(runs_image(image_id)) == digest


@given(st.text() | st.text("sha256:@0", max_size=200))
def test_what_a_kubelet_writes_as_image_never_fails_and_is_bounded(image_id: str) -> None:
    found = image_of(runs_image(image_id))
    assert found is None or (image_id.endswith(found) and len(found) <= 135)


@pytest.mark.parametrize(
    ("pods", "digest"),
    [
        ([runs_image(OTHER_DIGEST, container="proxy")], None),
        ([runs_image(OTHER_DIGEST, index="1"), runs_image(DIGEST, name="a-y", index="0")], DIGEST),
        ([runs_image(OTHER_DIGEST, index="1")], None),
        ([runs_image(OTHER_DIGEST, name="a-y"), runs_image(DIGEST, name="a-x")], DIGEST),
        ([runs_image(""), runs_image(DIGEST, name="a-y")], DIGEST),
    ],
)
def test_the_image_is_that_of_the_training_container_of_rank_0(pods: list[dict[str, Any]], digest: str | None) -> None:
    assert image_of(*pods) == digest
    assert image_of(*reversed(pods)) == digest


def test_the_image_of_a_job_set_is_that_of_its_first_job_that_trains() -> None:
    def of_job(index: str, image_id: str, container: str) -> Any:
        found = runs_image(image_id, name=f"a-{index}", container=container, index="0")
        found["metadata"]["labels"]["jobset.sigs.k8s.io/job-global-index"] = index
        return found

    other, first, second = of_job("0", OTHER_DIGEST, "data"), of_job("2", DIGEST, "train"), of_job("10", "", "train")
    assert image_of(other, first, second) == DIGEST
    # The first Job's image is not known yet.
    assert image_of(other, of_job("2", "", "train"), of_job("10", OTHER_DIGEST, "train")) is None


def test_the_training_containers_are_the_named_ones_in_their_order_or_else_the_first() -> None:
    containers = [{"name": "proxy"}, {"name": "train"}, {"name": "evaluate"}]
    template = Template(spec={"template": {"spec": {"containers": containers}}})
    assert JOB.training_containers(template, None) == ["proxy"]
    assert JOB.training_containers(template, ("evaluate", "train")) == ["train", "evaluate"]
