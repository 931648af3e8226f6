"""Workloads of another kind than Job: start, state, reports of their pods, and end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.control_plane.commands import ClusterCommand
from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.kubelet import Kubelet
from support.control_plane.observed_runs import first_of
from support.control_plane.train_set import WORKLOAD
from support.control_plane.training import Training, environment_of
from support.control_plane.waiting import Object
from wattloop_operator.domain.names import JobKey, recurrence_name, slot_of_request

MakeJob = Callable[..., JobKey]
RecurrencesOf = Callable[[JobKey], list[Object]]


def set_condition(kubectl: ClusterCommand, key: JobKey, kind: str) -> None:
    condition = f'{{"type":"{kind}","status":"True","lastTransitionTime":"2026-03-01T10:00:00Z"}}'
    patch = f'--patch={{"status":{{"conditions":[{condition}]}}}}'
    kubectl("patch", "trainset", first_of(key), "--subresource=status", "--type=merge", patch, namespace=key.namespace)


def worker_pod(core: client.CoreV1Api, key: JobKey, workload: Object) -> Object:
    """The pod that the kind's controller would create from its template."""
    template: dict[str, Any] = workload["spec"]["workers"]["template"]
    owner = {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "name": workload["metadata"]["name"],
        "uid": workload["metadata"]["uid"],
        "controller": True,
    }
    metadata = template["metadata"] | {"name": f"{first_of(key)}-worker-0", "ownerReferences": [owner]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    made: Object = core.api_client.sanitize_for_serialization(core.create_namespaced_pod(key.namespace, body))
    return made


@pytest.mark.usefixtures("train_sets")
def test_a_workload_of_another_kind_runs_to_its_target(
    operator: InProcessOperator,
    make_job: MakeJob,
    kubectl: ClusterCommand,
    kubelet: Kubelet,
    core: client.CoreV1Api,
    token_of_pod: Callable[[Object, str], str],
    tmp_path: Path,
    recurrences_of: RecurrencesOf,
) -> None:
    key = make_job(template={"workload": WORKLOAD})
    operator.reconcile(key)
    workload = kubectl.json("get", "trainset", first_of(key), namespace=key.namespace)
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "TrainingRecurrence"
    set_condition(kubectl, key, "Running")
    operator.reconcile(key)
    assert recurrences_of(key)[0]["status"]["workloadRef"]["kind"] == "TrainSet"
    pod = kubelet.run(worker_pod(core, key, workload))
    assert environment_of(pod)["WATTLOOP_BATCH_SIZE"] == "64"
    Training(pod, token_of_pod, tmp_path).reach_target()
    set_condition(kubectl, key, "Succeeded")
    operator.reconcile(key)
    (recurrence,) = recurrences_of(key)
    assert recurrence["status"]["result"] == "Reached"
    assert operator.backend.requeue_after_seconds(key) is None


@pytest.mark.usefixtures("train_sets")
def test_a_running_workload_of_another_kind_is_polled_and_ended_at_its_deadline(
    operator: InProcessOperator, make_job: MakeJob, kubectl: ClusterCommand, recurrences_of: RecurrencesOf
) -> None:
    key = make_job(template={"workload": WORKLOAD}, concurrencyPolicy="Replace")
    operator.reconcile(key)
    set_condition(kubectl, key, "Running")
    operator.reconcile(key)
    assert operator.backend.requeue_after_seconds(key) is not None
    make_job(template={"workload": WORKLOAD}, concurrencyPolicy="Replace", runRequest="second")
    operator.reconcile(key)
    results = [each["status"].get("result") for each in recurrences_of(key)]
    assert results == ["Cancelled", None]
    left = kubectl.json("get", "trainsets", namespace=key.namespace)["items"]
    assert [each["metadata"]["name"] for each in left] == [recurrence_name(key.name, 1, slot_of_request("second"), 0)]


def test_a_kind_that_the_cluster_lacks_is_reported(
    operator: InProcessOperator, make_job: MakeJob, kubectl: ClusterCommand
) -> None:
    unknown = WORKLOAD | {"apiVersion": "nowhere.example.com/v1"}
    key = make_job(template={"workload": unknown})
    operator.reconcile(key)
    job = kubectl.json("get", "rtj", key.name, namespace=key.namespace)
    (ready,) = [each for each in job["status"]["conditions"] if each["type"] == "Ready"]
    assert ready["reason"] == "TemplateRejected"
    assert "the cluster has no nowhere.example.com/v1; install the definition of TrainSet" in ready["message"]
