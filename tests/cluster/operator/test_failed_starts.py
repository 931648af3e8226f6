"""Pods that cannot start, and trainings that fail at their start: no batch size is blamed, few attempts are spent."""

from collections.abc import Callable
from typing import Any

import pytest

from support.agents.agent_fixture import until
from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, condition
from support.control_plane.kubelet import Kubelet
from support.control_plane.waiting import LONGEST_WAIT_SECONDS


@pytest.mark.parametrize(
    ("hinder", "reason", "text"),
    [(Kubelet.fail_image_pull, "ImagePullBackOff", "image "), (Kubelet.leave_unschedulable, "Unschedulable", "0/3")],
)
def test_what_hinders_a_pod_is_reported_while_the_run_waits_and_spends_no_attempt(
    driven: DrivenJob, hinder: Callable[[Kubelet, dict[str, Any]], Any], reason: str, text: str
) -> None:
    driven.begin()
    pod = driven.pending_pod()
    hinder(driven.kubelet, pod)
    driven.reconcile()
    assert driven.results == [None]
    running = condition(driven.recurrence, "Running")
    assert (running["status"], running["reason"]) == ("False", "Waiting")
    started = condition(driven.job, "PodsStarted")
    assert (started["status"], started["reason"]) == ("False", reason)
    for message in (running["message"], started["message"]):
        assert f"pod {pod['metadata']['name']}: " in message
        assert reason in message
        assert text in message


def test_a_pod_that_the_namespace_refuses_is_reported_and_starts_when_it_is_allowed(
    driven: DrivenJob, kubectl: ClusterCommand
) -> None:
    namespace, level = driven.key.namespace, "pod-security.kubernetes.io/enforce"
    kubectl("label", "namespace", namespace, f"{level}=restricted")
    driven.begin()
    about = f"reason=FailedCreate,involvedObject.name={driven.name_of()}"
    until(
        lambda: bool(kubectl.json("get", "events", f"--field-selector={about}", namespace=namespace)["items"]),
        "the Job controller to say that it cannot create the pod",
        LONGEST_WAIT_SECONDS,
    )
    driven.operator.clock.advance(10)
    driven.reconcile()
    assert driven.results == [None]
    started, running = condition(driven.job, "PodsStarted"), condition(driven.recurrence, "Running")
    assert (started["status"], started["reason"]) == ("False", "FailedCreate")
    assert driven.job["status"]["failure"] == "FailedCreate"
    for message in (started["message"], running["message"]):
        assert 'a pod of it cannot be created: Error creating: pods "' in message
        assert 'violates PodSecurity "restricted' in message
    kubectl("label", "namespace", namespace, f"{level}-")


def test_a_new_template_replaces_an_attempt_whose_image_cannot_be_pulled(driven: DrivenJob) -> None:
    driven.begin(retries=0)
    driven.kubelet.fail_image_pull(driven.pending_pod())
    driven.reconcile()
    fixed = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "digits:fixed"}]}
    driven.begin(retries=0, template={"spec": {"template": {"spec": fixed}}})
    assert driven.results == ["Disrupted", None]
    training = driven.train(driven.name_of(attempt=1))
    assert training.pod["spec"]["containers"][0]["image"] == "digits:fixed"
    driven.reconcile()
    assert "PodsStarted" not in {each["type"] for each in driven.job["status"]["conditions"]}


def test_a_field_that_the_api_server_would_drop_starts_nothing_and_is_named(driven: DrivenJob) -> None:
    container = {"name": "train", "image": "digits:1", "imagePullPolcy": "Always"}
    driven.begin(template={"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}})
    ready = condition(driven.job, "Ready")
    assert ready["reason"] == "TemplateRejected"
    place = "spec.template.spec.template.spec.containers[0].imagePullPolcy"
    assert f"{place}: found 'Always', expected no field of this name" in ready["message"]
    assert driven.recurrences == []


def test_a_program_that_is_not_in_the_image_is_tried_twice_and_blames_no_batch_size(driven: DrivenJob) -> None:
    driven.begin()
    refusal = 'exec: "pyton": executable file not found in $PATH'
    for attempt in range(2):
        name = driven.name_of(attempt)
        driven.kubelet.fail(driven.pending_pod(name), exit_code=128, reason="StartError", message=refusal)
        driven.after_end(name)
    assert driven.results == ["StartFailed", "StartFailed"]
    first, second = driven.recurrences
    assert first["spec"]["batchSize"] == second["spec"]["batchSize"]
    assert refusal in second["status"]["message"]
    last_run = condition(driven.job, "LastRunSucceeded")
    assert last_run["reason"] == "StartFailed"
    assert refusal in last_run["message"]
    assert driven.learned == ()


def test_an_import_error_is_known_by_the_end_of_the_log_in_the_pods_status(driven: DrivenJob) -> None:
    training = driven.start()
    pod = training.pod
    assert pod["spec"]["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
    log = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nImportError: no torch\n'
    driven.fail(training, message=log)
    status = driven.recurrences[0]["status"]
    assert status["result"] == "StartFailed"
    assert "ImportError: no torch; install the package" in status["message"]
    assert f"see kubectl logs {pod['metadata']['name']} -n {driven.key.namespace} -c " in status["message"]
    assert status["message"].endswith("\n  ImportError: no torch")


def test_an_init_container_that_fails_twice_ends_the_recurrence_and_is_named(driven: DrivenJob) -> None:
    fetch = {"name": "fetch", "image": "example.invalid/fetch:1"}
    container = {"name": "train", "image": "example.invalid/train:1"}
    pod_spec = {"restartPolicy": "Never", "containers": [container], "initContainers": [fetch]}
    driven.begin(template={"spec": {"template": {"spec": pod_spec}}})
    for attempt in range(2):
        pod = driven.pending_pod(driven.name_of(attempt))
        assert pod["spec"]["initContainers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
        driven.kubelet.fail_init_container(pod, exit_code=3, message="no route to data.example\n")
        driven.after_end(driven.name_of(attempt))
        status = driven.recurrences[attempt]["status"]
        assert status["result"] == "StartFailed"
        assert "init container fetch ended with exit code 3 (Error); fix this init container" in status["message"]
        assert f"see kubectl logs {pod['metadata']['name']} -n {driven.key.namespace} -c fetch" in status["message"]
        assert status["message"].endswith("\n  no route to data.example")
    assert len(driven.recurrences) == 2
    assert driven.learned == ()
