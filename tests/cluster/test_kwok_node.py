"""kwok plays a node, and runs and ends the pods of Jobs there."""

from pathlib import Path

import pytest
from kubernetes.dynamic import DynamicClient

from support.binaries.build import find
from support.control_plane.commands import ClusterCommand
from support.control_plane.kwok_node import NODE_NAME, PlayedTraining, kwok_node
from support.control_plane.objects import POD
from support.control_plane.waiting import Object, wait_until


def test_a_pod_runs_for_a_while_and_ends_with_its_message(
    kubectl: ClusterCommand, cluster: DynamicClient, namespace: str, tmp_path: Path
) -> None:
    program = find("kwok")
    if program is None:
        pytest.skip("kwok is not built: python3 tests/support/binaries/build.py kwok")
    # Bound by its template: this control plane has no scheduler.
    pod = {"restartPolicy": "Never", "nodeName": NODE_NAME, "containers": [{"name": "train", "image": "train"}]}
    job = {"backoffLimit": 0, "template": {"spec": pod}}
    with kwok_node(program, kubectl, tmp_path, PlayedTraining(2.0, 'epoch=3 "accuracy": 0.95')):
        kubectl.apply(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": job}, namespace=namespace
        )

        def ended(pods: list[Object]) -> Object | None:
            return next((each["status"] for each in pods if each["status"].get("phase") == "Succeeded"), None)

        status = wait_until(cluster, POD, ended, "the pod to succeed", namespace=namespace)
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert terminated["message"] == 'epoch=3 "accuracy": 0.95'
    assert terminated["exitCode"] == 0
    assert terminated["startedAt"] < terminated["finishedAt"]
