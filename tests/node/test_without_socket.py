"""Trainings without the agent's socket, in a namespace of Pod Security `restricted`: learned from, their limit held."""

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.agents.agent_fixture import until
from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object
from support.kubernetes_node.node import About
from support.kubernetes_node.users import RESTRICTED_SECURITY, make_editor, restrict
from support.node.digits import Runs, container_of
from support.node.limit_observer import LimitObserver
from support.node.paced import paced_job, put_scripts
from support.node.waits import SLOWEST_SECONDS, await_status, observations_of

MOUNTS_SOCKETS = False
NAMESPACE = "confined"
HELD_WATTS = 250
FOUND_WATTS = 400.0


@pytest.fixture(scope="module")
def user(node: About, kubectl: ClusterCommand, core: client.CoreV1Api) -> ClusterCommand:
    """An editor of a restricted namespace."""
    editor = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    restrict(kubectl, NAMESPACE)
    put_scripts(editor, NAMESPACE)
    return editor


@pytest.fixture(scope="module")
def ended(user: ClusterCommand, cluster: DynamicClient, gpus: Machine) -> tuple[list[Object], Object, set[float]]:
    """Two recurrences and the job's status, and the limits at which GPUs worked."""
    power = {"mode": "Fixed", "watts": HELD_WATTS}
    job = paced_job("confined", epoch_seconds=3.0, power=power)
    container_of(job)["securityContext"] = RESTRICTED_SECURITY
    user.apply(job, namespace=NAMESPACE)
    runs = Runs(user, cluster, "confined", NAMESPACE)
    with LimitObserver(gpus) as seen:
        recurrences = [runs.run(index) for index in range(2)]
    status = await_status(
        cluster, NAMESPACE, "confined", lambda status: observations_of(status) == len(recurrences), "to have learned"
    )
    worked_at = {watts for of_gpu in seen.worked_at.values() for watts in of_gpu}
    return recurrences, status, worked_at


Ended = tuple[list[Object], Object, set[float]]


def test_the_job_learns_from_what_the_agent_alone_reports(ended: Ended) -> None:
    recurrences, status, _ = ended
    for recurrence in recurrences:
        found = recurrence["status"]
        assert found["result"] == "Reached", found
        assert (found["usage"]["energySource"], found["usage"]["devices"]) == ("Agent", 1)
        assert found["usage"]["maxPowerLimitWatts"] == FOUND_WATTS
        assert float(found["costJoules"]) > 0
    assert "Learns" not in {each["type"] for each in status["conditions"]}


def test_the_decided_limit_is_held_by_the_agent_and_restored(ended: Ended, gpus: Machine) -> None:
    recurrences, _, worked_at = ended
    assert float(HELD_WATTS) in worked_at
    for recurrence in recurrences:
        (held,) = [each for each in recurrence["status"]["conditions"] if each["type"] == "PowerLimitHeld"]
        assert (held["status"], held["reason"]) == ("True", "Held")
        assert recurrence["status"]["progress"]["powerLimitWatts"] == HELD_WATTS
    # The agent looks for the end of pods by itself.
    until(
        lambda: {gpu.power_limit_watts for gpu in gpus.describe().gpus} == {FOUND_WATTS},
        "every limit is restored",
        SLOWEST_SECONDS,
    )


def test_its_pods_have_no_volume_of_the_host(ended: Ended, kubectl: ClusterCommand) -> None:
    assert ended
    for pod in kubectl.json("get", "pods", namespace=NAMESPACE)["items"]:
        assert not [volume for volume in pod["spec"]["volumes"] if "hostPath" in volume]
