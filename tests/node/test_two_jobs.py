"""Two jobs at the same time on four GPUs, one of them with two GPUs a pod: each has its own, and its own energy."""

import datetime

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Description, Machine
from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import Runs
from support.node.limit_observer import LimitObserver
from support.node.paced import paced_job, put_scripts

NAMESPACE = "two-jobs"
ROUNDS = 1
GPUS = {"narrow": 1, "wide": 2}
LIMITS = {"narrow": 250, "wide": 300}
FOUND_WATTS = 400.0
STEP_JOULES = 0.1 * FOUND_WATTS


class Round:
    """A recurrence of each job, begun together."""

    def __init__(
        self, recurrences: dict[str, Object], before: Description, after: Description, seen: LimitObserver
    ) -> None:
        self.recurrences = recurrences
        self.before = {gpu.uuid: gpu for gpu in before.gpus}
        self.after = {gpu.uuid: gpu for gpu in after.gpus}
        self.worked_at = seen.worked_at

    def gpus_of(self, job: str) -> set[str]:
        """The GPUs that worked at the limit of a job."""
        return {uuid for uuid, watts in self.worked_at.items() if float(LIMITS[job]) in watts}

    def used_joules(self, uuids: set[str]) -> float:
        """The energy of these GPUs in the simulator."""
        return sum(self.after[each].energy_microjoules - self.before[each].energy_microjoules for each in uuids) / 1e6


@pytest.fixture(scope="module")
def rounds(
    node: About, kubectl: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, gpus: Machine
) -> list[Round]:
    user = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    put_scripts(user, NAMESPACE)
    for job, count in GPUS.items():
        power = {"mode": "Fixed", "watts": LIMITS[job]}
        # A trial that is stopped as too expensive would have another attempt, perhaps on another GPU.
        mode = "Fixed"
        # Each job waits for the other before it begins.
        environment = {"HELD_GPUS": str(sum(GPUS.values()))}
        manifest = paced_job(job, gpus=count, epoch_seconds=0.5, environment=environment, power=power, mode=mode)
        user.apply(manifest, namespace=NAMESPACE)
    jobs = {job: Runs(user, cluster, job, NAMESPACE) for job in GPUS}
    found = []
    for index in range(ROUNDS):
        # Each GPU has its own time. A pod aligns its two GPUs, and the later one draws idle power meanwhile. No real
        # GPU makes this jump, and no training that has not begun to measure is charged with it.
        gpus.idle(sorted(gpu.uuid for gpu in gpus.describe().gpus), 0)
        before = gpus.describe()
        with LimitObserver(gpus) as seen:
            for runs in jobs.values():
                runs.ask(f"run-{index}")
            recurrences = {job: runs.await_recurrence(index) for job, runs in jobs.items()}
        found.append(Round(recurrences, before, gpus.describe(), seen))
    return found


def test_both_jobs_reach_their_targets_at_the_same_time(rounds: list[Round]) -> None:
    for each in rounds:
        assert [each.recurrences[job]["status"]["result"] for job in GPUS] == ["Reached", "Reached"]
    first = [each["status"] for each in rounds[0].recurrences.values()]
    begins = max(datetime.datetime.fromisoformat(status["startTime"]) for status in first)
    ends = min(datetime.datetime.fromisoformat(status["completionTime"]) for status in first)
    assert begins < ends, "they did not run together"


def test_each_job_has_its_own_gpus(rounds: list[Round]) -> None:
    for each in rounds:
        assert {job: len(each.gpus_of(job)) for job in GPUS} == GPUS
        assert not each.gpus_of("narrow") & each.gpus_of("wide")
        assert all(each.recurrences[job]["status"]["usage"]["devices"] == count for job, count in GPUS.items())


def test_each_job_is_charged_with_the_energy_of_its_gpus(rounds: list[Round]) -> None:
    for each in rounds:
        for job, count in GPUS.items():
            usage = each.recurrences[job]["status"]["usage"]
            used = each.used_joules(each.gpus_of(job))
            within = max(2 * count * STEP_JOULES, float(usage.get("uncertaintyJoules", 0)))
            assert float(usage["gpuEnergyJoules"]) == pytest.approx(used, abs=within), job
            assert usage["attribution"] == "Exclusive"
        idle = set(each.after) - each.gpus_of("narrow") - each.gpus_of("wide")
        assert each.used_joules(idle) == 0


def test_each_gpu_is_held_for_its_own_job_and_restored(rounds: list[Round]) -> None:
    for each in rounds:
        assert {gpu.power_limit_watts for gpu in each.after.values()} == {FOUND_WATTS}
        for job, watts in LIMITS.items():
            assert {held for uuid in each.gpus_of(job) for held in each.worked_at[uuid]} == {float(watts)}
