"""Two jobs in a queue of Kueue with room for one GPU: one preempts the other, which waits, and nobody pays for that.

Kueue is a process beside the node's API server, because its image is not to be had.
"""

import datetime
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.binaries.build import find
from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import condition
from support.control_plane.kueue_controller import kueue_controller, queue_objects
from support.control_plane.waiting import Object
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import Runs
from support.node.paced import paced_job, put_scripts
from support.node.waits import await_epoch, await_status, is_counted

# tests/cluster/operator/test_kueue.py preempts with the same controller; here the pods are real ones, too.
pytestmark = pytest.mark.exhaustive

NAMESPACE = "queue"
JOBS = ("low", "high")
STEP_JOULES = 0.1 * 400.0


@dataclass(frozen=True)
class Preemption:
    """What became of two jobs.

    Attributes:
        preempted: The first attempt of the job of low priority.
        resumed: The next one of the same job, after its end.
        preempting: The attempt of the other job.
        status: The status of the job of low priority.
        used_joules: The energy of all GPUs in the simulator.
    """

    preempted: Object
    resumed: Object
    preempting: Object
    status: Object
    used_joules: float


@pytest.fixture(scope="module")
def kueue(kubectl: ClusterCommand, cluster: DynamicClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    program = find("kueue")
    if program is None or shutil.which("go") is None:
        pytest.skip("no Kueue: make programs builds it, or says why it cannot; Go downloads its definitions")
    with kueue_controller(program, kubectl, cluster, tmp_path_factory.mktemp("kueue")):
        yield


@pytest.fixture(scope="module")
def preemption(
    kueue: None, node: About, kubectl: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, gpus: Machine
) -> Preemption:
    user = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    put_scripts(user, NAMESPACE)
    kubectl.apply(*queue_objects(NAMESPACE, quota=1, resource="nvidia.com/gpu"))
    for job in JOBS:
        # The second epoch of the one that is preempted has no end.
        environment = {"ENDLESS_ATTEMPT": "0"} if job == "low" else {}
        spec = {"batchSize": {"default": 64, "candidates": [64]}, "power": {"mode": "None"}}
        queued = paced_job(job, epoch_seconds=0.5, environment=environment, **spec)
        labels = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": f"{NAMESPACE}-{job}"}
        queued["spec"]["template"]["metadata"] = {"labels": labels}
        user.apply(queued, namespace=NAMESPACE)
    low, high = (Runs(user, cluster, job, NAMESPACE) for job in JOBS)
    before = gpus.describe()
    low.ask("run-0")
    await_epoch(cluster, NAMESPACE, "low")
    high.ask("run-0")
    high.await_recurrence(0)
    low.await_recurrence(0)
    status = await_status(cluster, NAMESPACE, "low", lambda found: is_counted(found, 1), "to have counted its run")
    preempted, resumed = low.recurrences()[:2]
    (preempting,) = high.recurrences()
    pairs = zip(before.gpus, gpus.describe().gpus, strict=True)
    used = sum(after.energy_microjoules - first.energy_microjoules for first, after in pairs) / 1e6
    return Preemption(preempted, resumed, preempting, status, used)


def test_a_preempted_training_is_disrupted_and_reaches_its_target_when_it_is_admitted_again(
    preemption: Preemption,
) -> None:
    assert preemption.preempted["status"]["result"] == "Disrupted"
    assert "its queue evicted it: Preempted" in preemption.preempted["status"]["message"]
    assert (preemption.resumed["spec"]["attempt"], preemption.resumed["status"]["result"]) == (1, "Reached")
    assert preemption.preempting["status"]["result"] == "Reached"
    counts = preemption.status["totals"]
    assert (counts["reached"], counts["failed"]) == (1, 0)


def test_a_training_that_waits_says_how_long_and_starts_when_the_other_one_has_ended(preemption: Preemption) -> None:
    queued = condition(preemption.resumed, "Queued")
    assert (queued["status"], queued["reason"]) == ("False", "Admitted")
    assert queued["message"].startswith("queue team: it waited ")
    ended = datetime.datetime.fromisoformat(preemption.preempting["status"]["completionTime"])
    assert datetime.datetime.fromisoformat(preemption.resumed["status"]["startTime"]) >= ended


def test_waiting_costs_neither_energy_nor_time(preemption: Preemption) -> None:
    resumed, other = (each["status"]["usage"] for each in (preemption.resumed, preemption.preempting))
    assert float(resumed["gpuEnergyJoules"]) == pytest.approx(float(other["gpuEnergyJoules"]), abs=4 * STEP_JOULES)
    # By the time of the simulated GPUs, to which waiting adds nothing.
    assert float(resumed["durationSeconds"]) == pytest.approx(float(other["durationSeconds"]), rel=0.1)
    all_three = (preemption.preempted, preemption.resumed, preemption.preempting)
    usages = [each["status"]["usage"] for each in all_three]
    charged = sum(float(usage["gpuEnergyJoules"]) for usage in usages)
    # That of the killed one is known by the agent's readings alone.
    within = sum(max(2 * STEP_JOULES, float(usage.get("uncertaintyJoules", 0))) for usage in usages)
    assert charged == pytest.approx(preemption.used_joules, abs=within)
