"""Workloads of another kind than Job: start, state, reports of their pods, and end."""

from typing import Any

import pytest
from kubernetes import client

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, condition, first_of
from support.control_plane.train_set import WORKLOAD
from support.control_plane.waiting import Object
from wattloop_operator.domain.names import JobKey


def set_condition(kubectl: ClusterCommand, key: JobKey, kind: str) -> None:
    found = f'{{"type":"{kind}","status":"True","lastTransitionTime":"2026-03-01T10:00:00Z"}}'
    patch = f'--patch={{"status":{{"conditions":[{found}]}}}}'
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
    driven: DrivenJob, kubectl: ClusterCommand, core: client.CoreV1Api
) -> None:
    driven.begin(template=WORKLOAD)
    workload = kubectl.json("get", "trainset", driven.name_of(), namespace=driven.key.namespace)
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "TrainingRecurrence"
    set_condition(kubectl, driven.key, "Running")
    driven.reconcile()
    assert driven.recurrence["status"]["workloadRef"]["kind"] == "TrainSet"
    training = driven.training_of(driven.kubelet.run(worker_pod(core, driven.key, workload)))
    assert training.environment.batch_size == 64
    training.reach_target()
    set_condition(kubectl, driven.key, "Succeeded")
    driven.reconcile()
    assert driven.results == ["Reached"]
    assert driven.operator.backend.requeue_after_seconds(driven.key) is None


@pytest.mark.usefixtures("train_sets")
def test_a_running_workload_of_another_kind_is_polled_and_ended_at_its_deadline(
    driven: DrivenJob, kubectl: ClusterCommand
) -> None:
    driven.begin(template=WORKLOAD, concurrencyPolicy="Replace")
    set_condition(kubectl, driven.key, "Running")
    driven.reconcile()
    assert driven.operator.backend.requeue_after_seconds(driven.key) is not None
    driven.begin(template=WORKLOAD, concurrencyPolicy="Replace", runRequest="second")
    assert driven.results == ["Cancelled", None]
    left = kubectl.json("get", "trainsets", namespace=driven.key.namespace)["items"]
    assert [each["metadata"]["name"] for each in left] == [driven.name_of(index=1, request="second")]


def test_a_kind_that_the_cluster_lacks_is_reported(driven: DrivenJob) -> None:
    driven.begin(template=WORKLOAD | {"apiVersion": "nowhere.example.com/v1"})
    ready = condition(driven.job, "Ready")
    assert ready["reason"] == "TemplateRejected"
    assert (
        "the cluster has no kind TrainSet in nowhere.example.com/v1; install the controller of nowhere"
        in ready["message"]
    )
