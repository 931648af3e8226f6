"""Scripts of strangers on a real node: a slow start is learned, and a mistake is nobody's batch size."""

from __future__ import annotations

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.local_runs.stranger import SCRIPTS
from support.node.digits import Runs, container_of
from support.node.paced import paced_job
from support.node.waits import await_condition

NAMESPACE = "strangers"
RECURRENCES = 4


@pytest.fixture(scope="module")
def user(node: About, kubectl: ClusterCommand, core: client.CoreV1Api) -> ClusterCommand:
    """An editor of a namespace that has the scripts."""
    user = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    content = {path.name: path.read_text(encoding="utf-8") for path in sorted(SCRIPTS.glob("*.py"))}
    metadata = {"name": "scripts", "namespace": NAMESPACE}
    user.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": content})
    return user


def stranger_job(name: str, threshold: str = "0.96") -> Object:
    """A job of a script, named like it.

    Whatever the seed, slow_start.py reaches 0.96 after 9 to 11 epochs of 256 samples a step. It reaches 0.95 after 1
    to 6, so that two runs' costs differ by chance.
    """
    job = paced_job(
        name,
        script=f"{name.replace('-', '_')}.py",
        objective={"target": {"metric": "accuracy", "threshold": threshold}, "maxEpochs": 60},
        batchSize={"default": 256, "candidates": [64, 128, 256]},
    )
    # Below the folder of the scripts, which is read-only and the first on their path.
    container_of(job)["env"].append({"name": "PYTHONDONTWRITEBYTECODE", "value": "1"})
    return job


def test_a_dear_first_epoch_stops_no_run_on_a_node(user: ClusterCommand, cluster: DynamicClient) -> None:
    user.apply(stranger_job("slow-start"), namespace=NAMESPACE)
    runs = Runs(user, cluster, "slow-start", NAMESPACE)
    ended = [runs.run(index) for index in range(RECURRENCES)]
    assert [each["status"]["result"] for each in ended] == ["Reached"] * RECURRENCES
    assert [each["spec"]["attempt"] for each in runs.recurrences()] == [0] * RECURRENCES
    first, last = (float(each["status"]["cost"]["joules"]) for each in (ended[0], ended[-1]))
    assert last <= 1.05 * first


def test_a_script_of_another_environment_fails_once_and_says_its_own_error(
    user: ClusterCommand, cluster: DynamicClient
) -> None:
    job = stranger_job("crash-at-once")
    container_of(job)["terminationMessagePolicy"] = "FallbackToLogsOnError"
    user.apply(job, namespace=NAMESPACE)
    runs = Runs(user, cluster, "crash-at-once", NAMESPACE)
    runs.ask("run-0")
    condition = await_condition(
        cluster, NAMESPACE, "crash-at-once", "Complete", status="True", message="polars_of_another_machine"
    )
    assert "ModuleNotFoundError" in condition["message"]
    sizes = {each["spec"]["batchSize"] for each in runs.recurrences()}
    assert sizes == {256}
