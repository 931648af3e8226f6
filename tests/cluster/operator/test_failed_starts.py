"""Pods that cannot start, and trainings that fail at their start: no batch size is blamed, few attempts are spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.kubelet import Kubelet
from support.control_plane.observed_runs import condition, first_of, learned
from support.control_plane.training import Training
from support.control_plane.waiting import Object
from wattloop_operator.domain.names import JobKey

MakeJob = Callable[..., JobKey]
Train = Callable[[JobKey, str], Training]
Ended = Callable[[JobKey, str], None]
JobOf = Callable[[JobKey], Object]
RecurrencesOf = Callable[[JobKey], list[Object]]


@pytest.mark.parametrize(
    ("hinder", "reason", "text"),
    [(Kubelet.fail_image_pull, "ImagePullBackOff", "image "), (Kubelet.leave_unschedulable, "Unschedulable", "0/3")],
)
def test_what_hinders_a_pod_is_reported_while_the_run_waits_and_spends_no_attempt(
    operator: InProcessOperator,
    make_job: MakeJob,
    kubelet: Kubelet,
    job_of: JobOf,
    recurrences_of: RecurrencesOf,
    hinder: Callable[[Kubelet, dict[str, Any]], Any],
    reason: str,
    text: str,
) -> None:
    key = make_job()
    operator.reconcile(key)
    (pod,) = kubelet.pods_of_job(first_of(key), key.namespace)
    hinder(kubelet, pod)
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert "result" not in recurrence["status"]
    running = condition(recurrence, "Running")
    assert (running["status"], running["reason"]) == ("False", "Waiting")
    started = condition(job_of(key), "PodsStarted")
    assert (started["status"], started["reason"]) == ("False", reason)
    for message in (running["message"], started["message"]):
        assert f"pod {pod['metadata']['name']}: " in message
        assert reason in message
        assert text in message


def test_a_new_template_replaces_an_attempt_whose_image_cannot_be_pulled(
    operator: InProcessOperator,
    make_job: MakeJob,
    kubelet: Kubelet,
    job_of: JobOf,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job(retryPolicy={"limit": 0})
    operator.reconcile(key)
    (pod,) = kubelet.pods_of_job(first_of(key), key.namespace)
    kubelet.fail_image_pull(pod)
    operator.reconcile(key)
    fixed = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "digits:fixed"}]}
    make_job(retryPolicy={"limit": 0}, template={"job": {"template": {"spec": fixed}}})
    operator.reconcile(key)
    assert [each["status"].get("result") for each in recurrences_of(key)] == ["Disrupted", None]
    (pod,) = kubelet.pods_of_job(first_of(key, attempt=1), key.namespace)
    assert pod["spec"]["containers"][0]["image"] == "digits:fixed"
    kubelet.run(pod)
    operator.reconcile(key)
    assert "PodsStarted" not in {each["type"] for each in job_of(key)["status"]["conditions"]}


def test_a_program_that_is_not_in_the_image_is_tried_twice_and_blames_no_batch_size(
    operator: InProcessOperator,
    make_job: MakeJob,
    kubelet: Kubelet,
    ended: Ended,
    job_of: JobOf,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    operator.reconcile(key)
    refusal = 'exec: "pyton": executable file not found in $PATH'
    for attempt in range(2):
        name = first_of(key, attempt=attempt)
        (pod,) = kubelet.pods_of_job(name, key.namespace)
        kubelet.fail(pod, exit_code=128, reason="StartError", message=refusal)
        ended(key, name)
        operator.reconcile(key)
    first, second = recurrences_of(key)
    assert [each["status"]["result"] for each in (first, second)] == ["StartFailed", "StartFailed"]
    assert first["spec"]["batchSize"] == second["spec"]["batchSize"]
    assert refusal in second["status"]["message"]
    last_run = condition(job_of(key), "LastRunSucceeded")
    assert last_run["reason"] == "StartFailed"
    assert refusal in last_run["message"]
    assert learned(operator, key) == ()


def test_an_import_error_is_known_by_the_end_of_the_log_in_the_pods_status(
    operator: InProcessOperator,
    make_job: MakeJob,
    train: Train,
    kubelet: Kubelet,
    ended: Ended,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job()
    operator.reconcile(key)
    pod = train(key, first_of(key)).pod
    assert pod["spec"]["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
    log = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nImportError: no torch\n'
    kubelet.fail(pod, message=log)
    ended(key, first_of(key))
    operator.reconcile(key)
    status = recurrences_of(key)[0]["status"]
    assert status["result"] == "StartFailed"
    assert "ImportError: no torch; install the package" in status["message"]
    assert f"see kubectl logs {pod['metadata']['name']} -n {key.namespace} -c " in status["message"]
    assert status["message"].endswith("\n  ImportError: no torch")


def test_an_init_container_that_fails_twice_ends_the_recurrence_and_is_named(
    operator: InProcessOperator,
    make_job: MakeJob,
    kubelet: Kubelet,
    ended: Ended,
    recurrences_of: RecurrencesOf,
) -> None:
    fetch = {"name": "fetch", "image": "example.invalid/fetch:1"}
    container = {"name": "train", "image": "example.invalid/train:1"}
    pod_spec = {"restartPolicy": "Never", "containers": [container], "initContainers": [fetch]}
    key = make_job(template={"job": {"template": {"spec": pod_spec}}})
    operator.reconcile(key)
    for attempt in range(2):
        (pod,) = kubelet.pods_of_job(first_of(key, attempt=attempt), key.namespace)
        assert pod["spec"]["initContainers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
        kubelet.fail_init_container(pod, exit_code=3, message="no route to data.example\n")
        ended(key, first_of(key, attempt=attempt))
        operator.reconcile(key)
        status = recurrences_of(key)[attempt]["status"]
        assert status["result"] == "StartFailed"
        assert "init container fetch ended with exit code 3 (Error); fix this init container" in status["message"]
        assert f"see kubectl logs {pod['metadata']['name']} -n {key.namespace} -c fetch" in status["message"]
        assert status["message"].endswith("\n  no route to data.example")
    assert len(recurrences_of(key)) == 2
    assert learned(operator, key) == ()
