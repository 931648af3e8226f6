"""Rounds of kills while two jobs train: all energy is reported once, and every GPU is restored."""

import collections
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.agents.agent_fixture import until
from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.waiting import Object
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.installation import AGENTS, OPERATORS
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import Runs, in_order
from support.node.killing import Killer
from support.node.ledger_observer import LedgerObserver
from support.node.paced import paced_job, put_scripts
from support.node.waits import SLOWEST_SECONDS
from support.test_sets.parameters import exhaustive_after
from support.training_journal import FOLDER, NOBODY, EnergyUse, ReportedEnergy, energy_uses, not_reported, read_journal

KINDS = 7
SEED = 20261120
GPUS = {"narrow": 1, "wide": 2}
RETRIES = 5
ALL_ENDED_WITHIN_SECONDS = 500.0
REMIND_EVERY_SECONDS = 10.0
ROUNDED_JOULES = 0.01


@dataclass(frozen=True)
class Aftermath:
    """The state after everything has ended.

    Attributes:
        rounds: How often each kind of thing was to be killed.
        killed: How often each kind of thing was killed.
        attempts: Of each job, the first one first.
        statuses: Of each job.
        observations: (recurrence, attempt) of every row of the operator's database, by job.
        orphans: Jobs and pods whose owner is gone, and pods that still run, once there was time to remove them.
        joules: The energy of all GPUs in the simulator.
        energies: The reported and the actual energy of each attempt.
        unclaimed: Energy that no pod can have used, which would be an error of this test.
        next: Of each job, a recurrence that was asked for afterwards.
    """

    rounds: int
    killed: collections.Counter[str]
    attempts: dict[str, list[Object]]
    statuses: dict[str, Object]
    observations: dict[str, list[tuple[int, int]]]
    orphans: list[str]
    joules: float
    energies: list[ReportedEnergy]
    unclaimed: EnergyUse | None
    next: dict[str, Object]


@pytest.fixture(scope="module", params=exhaustive_after([1, 4]), ids=["one-round", "four-rounds"])
def aftermath(
    request: pytest.FixtureRequest,
    node: About,
    kubectl: ClusterCommand,
    core: client.CoreV1Api,
    cluster: DynamicClient,
    gpus: Machine,
) -> Aftermath:
    rounds: int = request.param
    namespace = f"kills-{rounds}"
    make_editor(node, kubectl, core, namespace)
    put_scripts(kubectl, namespace)
    journal = gpus.path.parent / FOLDER
    if journal.exists():
        # Of a run before, on a node that is there for longer.
        shutil.rmtree(journal)
    journal.mkdir()
    # Trainings have users of their own.
    journal.chmod(0o1777)
    before = energy_joules(gpus)
    for job, count in GPUS.items():
        limits = {"successfulRunsHistoryLimit": 1000, "failedRunsHistoryLimit": 1000}
        kubectl.apply(paced_job(job, gpus=count, epoch_seconds=0.7, continuous=True, **limits), namespace=namespace)
    jobs = {job: Runs(kubectl, cluster, job, namespace) for job in GPUS}
    with LedgerObserver(NodeFolders(Path(node.folder)).agent_state / "monitor" / "energy.json") as ledgers:
        killed = kill(Killer(Path(node.folder), kubectl, namespace, SEED), rounds)
        come_to_rest(kubectl, jobs, namespace)
        attempts, statuses = await_last_words(jobs, ledgers)
    after = energy_joules(gpus)
    used = energy_uses(read_journal(journal), before, after)
    aftermath = Aftermath(
        rounds=rounds,
        killed=killed,
        attempts=attempts,
        statuses=statuses,
        observations={job: observations(node, of[0]["spec"]["jobRef"]["uid"]) for job, of in attempts.items()},
        orphans=lasting_orphans(kubectl, namespace),
        joules=sum(after.values()) - sum(before.values()),
        energies=[ReportedEnergy.of(each, used) for of in attempts.values() for each in of],
        unclaimed=used.get(NOBODY),
        next={},
    )
    for job, runs in jobs.items():
        aftermath.next[job] = runs.run(1 + max(each["spec"]["index"] for each in attempts[job]))
    return aftermath


def kill(killer: Killer, rounds: int) -> collections.Counter[str]:
    """Kills the next part in turn as soon as it runs, then waits for some time."""
    killed: collections.Counter[str] = collections.Counter()
    for kind in killer.rounds(KINDS * rounds):
        deadline = time.monotonic() + SLOWEST_SECONDS
        while not killer.kinds[kind]():
            assert time.monotonic() < deadline, f"there is no {kind} to kill; killed so far: {killed}"
            time.sleep(0.2)
        killed[kind] += 1
        time.sleep(killer.pause_seconds(0.5, 4.0))
    return killed


def come_to_rest(kubectl: ClusterCommand, jobs: dict[str, Runs], namespace: str) -> None:
    """Requests no further runs, and waits for all attempts of those that have begun.

    A job's status is written after that of an attempt, so it is waited for until it has counted the last one.
    """
    manual = '--patch={"spec": {"continuous": false}}'
    deadline = time.monotonic() + ALL_ENDED_WITHIN_SECONDS
    reminded = time.monotonic()
    while True:
        try:
            if time.monotonic() > reminded + REMIND_EVERY_SECONDS:
                reminded = time.monotonic()
                remind_of_jobs(kubectl, namespace, reminded)
            for job in jobs:
                kubectl("patch", "rtj", job, "--type=merge", manual, namespace=namespace)
            attempts = {job: in_order(runs.recurrences()) for job, runs in jobs.items()}
            statuses = {job: runs.status() for job, runs in jobs.items()}
            active = sum(len(status.get("active", ())) for status in statuses.values())
            begun = {job: {each["spec"]["index"] for each in of} for job, of in attempts.items()}
            counted = all(statuses[job]["totals"]["recurrences"] == len(of) for job, of in begun.items())
            ended = all("completionTime" in each.get("status", {}) for of in attempts.values() for each in of)
            active += sum(len(of) and is_tried_again(of[-1]) for of in attempts.values())
            if ended and counted and not active:
                for part in (OPERATORS, AGENTS):
                    kubectl("wait", "--for=condition=Ready", "pods", "--all", "--timeout=150s", namespace=part)
                return
        except CommandError as error:
            # The API server is just coming back.
            words = str(error)
        else:
            words = f"{active} runs are active" if active else "the jobs' statuses have not counted every attempt"
        assert time.monotonic() < deadline, words
        time.sleep(1.0)


def remind_of_jobs(kubectl: ClusterCommand, namespace: str, moment: float) -> None:
    """Changes an annotation of the Jobs that seem forgotten, so that Kubernetes' Job controller looks at them again.

    If the API server is killed while the controller counts a pod that was deleted by force, the controller can count
    the failure, and then neither end the Job nor create another pod. It waits for an event of its own change for five
    minutes, and afterwards looks at a Job only when the Job changes.
    """
    for job in kubectl.json("get", "jobs", namespace=namespace)["items"]:
        status = job.get("status", {})
        if status.get("failed") and not status.get("active") and not status.get("conditions"):
            print(f"the Job {job['metadata']['name']} seems forgotten: {status}")
            reminder = f"test.wattloop.dev/reminder={moment:.0f}"
            kubectl("annotate", "job", job["metadata"]["name"], "--overwrite", reminder, namespace=namespace)


def await_last_words(
    jobs: dict[str, Runs], ledgers: LedgerObserver
) -> tuple[dict[str, list[Object]], dict[str, Object]]:
    """Waits until what agents knew of attempts has got to their status and to their jobs'; returns both."""
    deadline = time.monotonic() + SLOWEST_SECONDS
    while True:
        attempts = {job: in_order(runs.recurrences()) for job, runs in jobs.items()}
        statuses = {job: runs.status() for job, runs in jobs.items()}
        missing = [name for of in attempts.values() for name in not_reported(of, ledgers.pod_uids)]
        missing += [job for job, of in attempts.items() if not is_their_sum(statuses[job], of)]
        if not missing:
            return attempts, statuses
        assert time.monotonic() < deadline, f"what agents know of their energy has not come to {', '.join(missing)}"
        time.sleep(1.0)


def is_their_sum(status: Object, attempts: list[Object]) -> bool:
    """Whether a job's status says the sum of what its attempts used."""
    used = sum(float(each["status"].get("usage", {}).get("gpuEnergyJoules", 0)) for each in attempts)
    return abs(float(status["totals"]["gpuEnergyJoules"]) - used) <= ROUNDED_JOULES * len(attempts)


def is_tried_again(attempt: Object) -> bool:
    """Whether another attempt has to follow."""
    return attempt.get("status", {}).get("result") != "Reached" and attempt["spec"]["attempt"] < RETRIES


def energy_joules(gpus: Machine) -> dict[str, float]:
    """The simulator's energy by GPU."""
    return {gpu.uuid: gpu.energy_microjoules / 1e6 for gpu in gpus.describe().gpus}


def observations(node: About, job_uid: str) -> list[tuple[int, int]]:
    """The rows of the operator's database, read beside the operator."""
    path = NodeFolders(Path(node.folder)).host / "volume" / "wattloop.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        question = "SELECT recurrence, attempt FROM observations WHERE job_uid = ?"
        return sorted(database.execute(question, (job_uid,)))


def lasting_orphans(kubectl: ClusterCommand, namespace: str) -> list[str]:
    """The orphans that remain: Kubernetes removes a pod some time after what it belonged to has ended."""
    deadline = time.monotonic() + SLOWEST_SECONDS
    while (found := orphans(kubectl, namespace)) and time.monotonic() < deadline:
        time.sleep(1.0)
    return found


def orphans(kubectl: ClusterCommand, namespace: str) -> list[str]:
    """Jobs and pods whose owner is not there, and pods that still run."""
    there = {
        each["metadata"]["uid"]
        for kind in ("trec", "jobs")
        for each in kubectl.json("get", kind, namespace=namespace)["items"]
    }
    return [
        f"{kind}/{each['metadata']['name']}"
        for kind in ("jobs", "pods")
        for each in kubectl.json("get", kind, namespace=namespace)["items"]
        if each["metadata"]["ownerReferences"][0]["uid"] not in there or each["status"].get("phase") == "Running"
    ]


def test_every_part_was_killed_in_turn(aftermath: Aftermath) -> None:
    assert list(aftermath.killed.values()) == [aftermath.rounds] * KINDS


def test_every_attempt_has_one_outcome_and_one_observation(aftermath: Aftermath) -> None:
    for job, attempts in aftermath.attempts.items():
        keys = [(each["spec"]["index"], each["spec"]["attempt"]) for each in attempts]
        assert len(set(keys)) == len(keys)
        assert all(each["status"].get("result") for each in attempts)
        assert aftermath.observations[job] == keys


def test_the_recurrences_and_their_attempts_have_no_gap(aftermath: Aftermath) -> None:
    for job, attempts in aftermath.attempts.items():
        by_index: dict[int, list[Object]] = collections.defaultdict(list)
        for each in attempts:
            by_index[each["spec"]["index"]].append(each)
        assert sorted(by_index) == list(range(len(by_index)))
        for of_one in by_index.values():
            assert [each["spec"]["attempt"] for each in of_one] == list(range(len(of_one)))
            # Nothing is tried again once the target has been reached.
            assert all(each["status"]["result"] != "Reached" for each in of_one[:-1]), job


def test_the_next_run_is_not_affected(aftermath: Aftermath) -> None:
    for job, count in GPUS.items():
        status = aftermath.next[job]["status"]
        assert status["result"] == "Reached"
        assert status["usage"]["devices"] == count, "the training found no agent"
        assert float(status["costJoules"]) > 0


def test_the_sums_in_the_status_are_those_of_the_attempts(aftermath: Aftermath) -> None:
    for job, attempts in aftermath.attempts.items():
        status = aftermath.statuses[job]
        indices = {each["spec"]["index"] for each in attempts}
        reached = {each["spec"]["index"] for each in attempts if each["status"]["result"] == "Reached"}
        counts = status["totals"]
        assert counts["recurrences"] == len(indices)
        assert (counts.get("reached", 0), counts.get("failed", 0)) == (len(reached), len(indices - reached))
        assert is_their_sum(status, attempts)


def test_every_joule_of_the_gpus_belongs_to_an_attempt(aftermath: Aftermath) -> None:
    assert aftermath.unclaimed is None
    drawn = sum(each.use.worked_joules + each.use.aligned_joules for each in aftermath.energies)
    assert drawn == pytest.approx(aftermath.joules)


def test_the_energy_of_every_attempt_is_that_of_its_gpus(aftermath: Aftermath) -> None:
    print(*aftermath.energies, sep="\n")
    wrong = [str(each) for each in aftermath.energies if not each.min_joules <= each.reported_joules <= each.max_joules]
    assert wrong == []


def test_the_sum_of_energies_matches_the_gpus_energy(aftermath: Aftermath) -> None:
    energies = aftermath.energies
    reported = sum(each.reported_joules for each in energies)
    minimum, maximum = sum(each.min_joules for each in energies), sum(each.max_joules for each in energies)
    unknown = [each for each in energies if each.uncertainty_joules is None]
    missing = sum(each.use.worked_joules - each.reported_joules for each in unknown)
    print(
        f"told {reported:.0f} J of {aftermath.joules:.0f} J, from {minimum:.0f} to {maximum:.0f} J can be; "
        f"{len(unknown)} of {len(energies)} attempts not known: {missing:.0f} J missing"
    )
    assert minimum <= reported <= maximum


def test_every_gpu_is_restored(aftermath: Aftermath, gpus: Machine) -> None:
    for gpu in gpus.describe().gpus:
        assert gpu.power_limit_watts == 400.0
        assert gpu.locked_graphics_clocks_megahertz is None


def test_no_job_pod_lease_or_file_remains(aftermath: Aftermath, node: About) -> None:
    assert aftermath.orphans == []
    state = NodeFolders(Path(node.folder)).agent_state
    leases = state / "agent" / "leases.json"
    until(lambda: '"leases": []' in leases.read_text(encoding="utf-8"), "no lease is left", SLOWEST_SECONDS)
    kept = {"agent/leases.json", "monitor/energy.json", "monitor/bounds.json"}

    def others() -> set[str]:
        return {str(path.relative_to(state)) for path in state.rglob("*") if path.is_file()} - kept

    # The monitor runs on, and each of its writes makes a temporary file for a moment.
    until(lambda: not others(), "only the files that an agent keeps are there", SLOWEST_SECONDS)
