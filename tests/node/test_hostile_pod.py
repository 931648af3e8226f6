"""A training pod attempts forbidden requests: each is rejected, and its neighbour is not affected."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.control_plane.commands import ClusterCommand
from support.control_plane.objects import POD
from support.control_plane.tokens import pod_token
from support.control_plane.training import AUDIENCE
from support.control_plane.waiting import Object, wait_until
from support.kubernetes_node.installation import AGENTS, OPERATORS
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import Runs
from support.node.limit_observer import LimitObserver
from support.node.paced import paced_job, put_scripts
from support.node.waits import await_epoch
from wattloop_operator.reporting.report_limits import CLUSTER_RATES

VICTIMS, ATTACKERS = "victims", "attackers"
HELD_WATTS = 250
STEP_JOULES = 0.1 * 400.0


@dataclass(frozen=True)
class Attack:
    """The responses to the attacker, and the victim's outcome.

    Attributes:
        answers: The response to each attempt.
        attacker: Its recurrence, when it had ended.
        victim: The victim's.
        victim_joules: The energy of the victim's GPU in the simulator.
        worked_at: The limits at which the victim's GPU was seen to work.
        restarts: How often containers of operator and agent have been started again.
    """

    answers: dict[str, Any]
    attacker: Object
    victim: Object
    victim_joules: float
    worked_at: dict[float, float]
    restarts: int


@pytest.fixture(scope="module")
def attack(
    node: About, kubectl: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, gpus: Machine
) -> Attack:
    users = {each: kubectl.as_user(make_editor(node, kubectl, core, each)) for each in (VICTIMS, ATTACKERS)}
    for namespace, user in users.items():
        put_scripts(user, namespace)
    power = {"mode": "Fixed", "watts": HELD_WATTS}
    users[VICTIMS].apply(paced_job("victim", epoch_seconds=4.0, power=power), namespace=VICTIMS)
    victim = Runs(users[VICTIMS], cluster, "victim", VICTIMS)
    before = gpus.describe()
    restarts_before = restarts(kubectl)
    victim.ask("run-0")
    recurrence = await_epoch(cluster, VICTIMS, "victim")
    (gpu,) = [each.uuid for each in gpus.describe().gpus if each.power_limit_watts == HELD_WATTS]
    with LimitObserver(gpus) as seen:
        attacker = start_attacker(users, cluster, core, recurrence, gpu)
        answers = answers_of(users[ATTACKERS], cluster)
    index = gpus.index(gpu)
    ended = victim.await_recurrence(0)
    used = gpus.describe().gpus[index].energy_microjoules - before.gpus[index].energy_microjoules
    return Attack(
        answers=answers,
        attacker=attacker.await_recurrence(0),
        victim=ended,
        victim_joules=used / 1e6,
        worked_at=dict(seen.worked_at[gpu]),
        restarts=restarts(kubectl) - restarts_before,
    )


def start_attacker(
    users: dict[str, ClusterCommand], cluster: DynamicClient, core: client.CoreV1Api, victim: Object, gpu: str
) -> Runs:
    (pod,) = users[VICTIMS].json("get", "pods", "--selector=wattloop.dev/recurrence", namespace=VICTIMS)["items"]
    environment = {
        "VICTIM_GPU": gpu,
        "VICTIM_NAMESPACE": VICTIMS,
        "VICTIM_RECURRENCE": victim["metadata"]["name"],
        # How it was stolen does not matter here.
        "VICTIM_TOKEN": pod_token(core, pod, audiences=[AUDIENCE]),
    }
    job = paced_job("attacker", script="hostile_training.py", environment=environment, retries=0)
    users[ATTACKERS].apply(job, namespace=ATTACKERS)
    runs = Runs(users[ATTACKERS], cluster, "attacker", ATTACKERS)
    runs.ask("run-0")
    return runs


def answers_of(user: ClusterCommand, cluster: DynamicClient) -> dict[str, Any]:
    def ended(pods: list[Object]) -> str | None:
        return next(
            (each["metadata"]["name"] for each in pods if each["status"]["phase"] in {"Succeeded", "Failed"}), None
        )

    name = wait_until(cluster, POD, ended, "the attacker's end", namespace=ATTACKERS, timeout_seconds=400.0)
    said = user("logs", name, namespace=ATTACKERS)
    answers: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return answers


def restarts(kubectl: ClusterCommand) -> int:
    return sum(
        container["restartCount"]
        for namespace in (OPERATORS, AGENTS)
        for pod in kubectl.json("get", "pods", namespace=namespace)["items"]
        for container in pod["status"]["containerStatuses"]
    )


@pytest.mark.parametrize(
    ("tried", "answer"),
    [
        ("hold another's limit", "NotYours"),
        ("hold another's clocks", "NotYours"),
        ("release another's", "NotYours"),
        ("read another's energy", "NotYours"),
        ("report for another", 403),
        ("report with another's token", 403),
        ("report with a token of the API server", 401),
        ("read another's decision", 403),
        ("report energy as an agent", 403),
        ("write its status", 403),
        ("write its status with a report's token", 401),
        ("write its job's status", 403),
    ],
)
def test_it_is_refused(tried: str, answer: str | int, attack: Attack) -> None:
    assert attack.answers[tried] == answer


def test_each_report_of_a_flood_is_rejected(attack: Attack) -> None:
    assert set(attack.answers["flood of reports"]) <= {"403", "429", "503"}, attack.answers


def test_a_flood_of_its_own_reports_is_limited(attack: Attack) -> None:
    flood = attack.answers["flood of its own reports"]
    assert set(flood["answers"]) <= {"200", "429", "503"}, flood
    # A machine that does much else takes a minute or two for 800 requests, for which more are allowed.
    rate = CLUSTER_RATES.token
    assert flood["answers"].get("200", 0) <= rate.burst + rate.per_second * (flood["seconds"] + 1), flood


def test_a_flood_of_connections_gets_a_bounded_share(attack: Attack) -> None:
    assert attack.answers["flood of connections"]["served"] <= 32, attack.answers


def test_the_neighbour_reaches_its_target_at_its_limit_and_is_charged_with_its_own_energy(attack: Attack) -> None:
    status = attack.victim["status"]
    assert (status["result"], attack.victim["spec"]["attempt"]) == ("Reached", 0)
    assert float(status["progress"]["epoch"]) > 1, "the attacker's report was taken for the victim's"
    assert set(attack.worked_at) == {float(HELD_WATTS)}
    within = max(2 * STEP_JOULES, float(status["usage"].get("uncertaintyJoules", 0)))
    assert float(status["usage"]["gpuEnergyJoules"]) == pytest.approx(attack.victim_joules, abs=within)


def test_the_attacker_gains_nothing(attack: Attack) -> None:
    assert attack.attacker["status"]["result"] != "Reached"


def test_no_part_of_wattloop_restarted(attack: Attack) -> None:
    assert attack.restarts == 0
