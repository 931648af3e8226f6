"""A training that ends while the operator is away: what its pod has left is its true outcome."""

from collections.abc import Callable

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.control_plane.commands import ClusterCommand
from support.control_plane.objects import POD
from support.control_plane.waiting import Object, wait_until
from support.kubernetes_node.installation import OPERATORS
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import Runs
from support.node.paced import paced_job, put_scripts
from support.node.waits import SLOWEST_SECONDS, await_epoch

NAMESPACE, JOB = "operator-away", "away"
PART = "app.kubernetes.io/component"
# The default batch size of 64 needs six epochs. The client repeats its last report for a minute before it ends.
EPOCHS = 6


@pytest.mark.exhaustive
def test_it_is_reached_with_all_its_epochs_and_energy_and_does_not_run_again(
    node: About, kubectl: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, gpus: Machine
) -> None:
    user = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    put_scripts(user, NAMESPACE)
    batch_size = {"default": 64, "candidates": [64]}
    user.apply(paced_job(JOB, power={"mode": "None"}, mode="Fixed", batchSize=batch_size), namespace=NAMESPACE)
    runs = Runs(user, cluster, JOB, NAMESPACE)
    before = gpus.describe()
    runs.ask("run-0")
    await_epoch(cluster, NAMESPACE, JOB)
    scale_operator(kubectl, cluster, 0)
    await_pods(cluster, NAMESPACE, lambda pods: [each["status"]["phase"] for each in pods] == ["Succeeded"], "its end")
    (pod,) = kubectl.json("get", "pods", namespace=NAMESPACE)["items"]
    scale_operator(kubectl, cluster, 1)
    recurrence = runs.await_recurrence(0)
    status = recurrence["status"]
    assert (status["result"], float(status["epochs"])) == ("Reached", EPOCHS), status
    assert len(runs.recurrences()) == 1
    used = sum(gpu.energy_microjoules for gpu in gpus.describe().gpus)
    used -= sum(gpu.energy_microjoules for gpu in before.gpus)
    within = max(2 * 0.1 * 400.0, float(status["usage"].get("uncertaintyJoules", 0)))
    assert float(status["usage"]["gpuEnergyJoules"]) == pytest.approx(used / 1e6, abs=within)
    (container,) = pod["status"]["containerStatuses"]
    assert container["state"]["terminated"]["message"].startswith("Reports for Wattloop")


def scale_operator(kubectl: ClusterCommand, cluster: DynamicClient, replicas: int) -> None:
    kubectl("scale", "deployment/wattloop-operator", f"--replicas={replicas}", f"--namespace={OPERATORS}")

    def scaled(pods: list[Object]) -> bool:
        operators = [each for each in pods if each["metadata"]["labels"].get(PART) == "operator"]
        return len(operators) == replicas and all(is_ready(each) for each in operators)

    await_pods(cluster, OPERATORS, scaled, f"{replicas} operators to be ready")


def is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def await_pods(cluster: DynamicClient, namespace: str, condition: Callable[[list[Object]], bool], what: str) -> None:
    wait_until(cluster, POD, condition, what, namespace=namespace, timeout_seconds=SLOWEST_SECONDS)
