"""Nine pods without a GPU attack a node's agent together: a neighbour keeps its limit and gets its responses."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.control_plane.commands import ClusterCommand
from support.control_plane.objects import POD
from support.control_plane.waiting import Object, wait_until
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.installation import AGENTS
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import container_of, digits_job
from support.node.killing import processes_of_container
from support.node.paced import put_scripts
from support.node.polling import Poller
from support.node.waits import SLOWEST_SECONDS

# The long form of an attack: tests/agent/attacks shows each of them by itself, test_hostile_pod.py the neighbour.
pytestmark = pytest.mark.exhaustive

NEIGHBOUR, ATTACKERS = "neighbour", "hostile-pods"
ATTACK_SECONDS = 25
LATECOMER_SECONDS = 8
HELD_WATTS = 150
METRICS_PORT = 9403
# One attack a pod; the agent's socket is the same for all of them.
ATTACKS = ("newlines", "newlines", "valid", "idle", "half", "subscribers", "deaf", "churn")
SCRIPTS = "/opt/scripts"
SOCKET = "/run/agent/agent.sock"
END = "/tmp/end"
# Bounds of docs/internals/security.md: connections with two descriptors each beside the agent's own files; 20 log lines
# a second and their summaries; 64 threads of the metrics port beside those that the agent has.
MAX_DESCRIPTORS = 1_280
MAX_GROWTH_KIBIBYTES = 64 * 1024
MAX_THREADS = 96
MAX_LOG_BYTES = 250_000
# Measured: 0.5 s on an idle machine, 1.2 s where nine other processes compute. Unbounded attacks made it 15 s, and the
# limit was lost after 4 s without a heartbeat.
MAX_ANSWER_SECONDS = 6.0


class AgentSeen(Poller):
    """Looks at the agent's unprivileged process and at a GPU.

    Attributes:
        limits: The power limits that the GPU had while it was held.
        descriptors: The most that the process had open.
        threads: The most that it had.
        memory_kibibytes: The most that it had resident.
    """

    def __init__(self, machine: Machine, gpu: str, process: int) -> None:
        super().__init__(every_seconds=0.05)
        self._machine, self._gpu, self._process = machine, gpu, process
        self.limits: set[float] = set()
        self.descriptors = self.threads = self.memory_kibibytes = 0
        self.poll()

    def poll(self) -> None:
        """Take note of what there is to see now."""
        self.limits |= {each.power_limit_watts for each in self._machine.describe().gpus if each.uuid == self._gpu}
        status = Path(f"/proc/{self._process}/status").read_text(encoding="utf-8")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        self.threads = max(self.threads, int(fields["Threads"]))
        self.memory_kibibytes = max(self.memory_kibibytes, int(fields["VmRSS"].split()[0]))
        self.descriptors = max(self.descriptors, len(os.listdir(f"/proc/{self._process}/fd")))  # noqa: PTH208


@dataclass(frozen=True)
class Attacked:
    """The observations of one attack.

    Attributes:
        reported: By attack, what each attacker printed.
        neighbour: The output of the neighbour, which held its limit before.
        latecomer: The output of another pod with a GPU that started during the attacks.
        seen: The observed state of agent and GPU.
        memory_before_kibibytes: The agent's resident memory before.
        log_bytes: The size of the agent's log during the attacks.
        restarts: How often a container of the agent was started again.
    """

    reported: dict[str, list[dict[str, Any]]]
    neighbour: dict[str, Any]
    latecomer: dict[str, Any]
    seen: AgentSeen
    memory_before_kibibytes: int
    log_bytes: int
    restarts: int


def pod(about: About, name: str, command: list[str], *, gpus: int = 0, cpu: str = "100m") -> Object:
    """A pod of the example's image with the agent's socket and the scripts, bounded in its processor time."""
    container = {
        "name": "main",
        "image": container_of(digits_job())["image"],
        "command": command,
        "volumeMounts": [
            {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
            {"name": "socket", "mountPath": str(Path(SOCKET).parent), "readOnly": True},
        ],
        "resources": {"limits": {"cpu": cpu, "memory": "256Mi"} | ({"nvidia.com/gpu": gpus} if gpus else {})},
    }
    folder = str(NodeFolders(Path(about.folder)).agent_socket)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [
                {"name": "scripts", "configMap": {"name": "scripts"}},
                {"name": "socket", "hostPath": {"path": folder, "type": "Directory"}},
            ],
        },
    }


def ended(cluster: DynamicClient, namespace: str, names: list[str]) -> None:
    """Waits until these pods have ended."""

    def all_ended(pods: list[Object]) -> bool:
        phases = {each["metadata"]["name"]: each["status"]["phase"] for each in pods}
        return all(phases.get(name) in {"Succeeded", "Failed"} for name in names)

    wait_until(
        cluster, POD, all_ended, f"the end of {', '.join(names)}", namespace=namespace, timeout_seconds=SLOWEST_SECONDS
    )


def agent_pod(kubectl: ClusterCommand) -> Object:
    (found,) = kubectl.json("get", "pods", "--selector=app.kubernetes.io/component=agent", namespace=AGENTS)["items"]
    return found


def monitor_status(pod: Object) -> Object:
    return next(each for each in pod["status"]["containerStatuses"] if each["name"] == "monitor")


def monitor_log(kubectl: ClusterCommand) -> str:
    return kubectl("logs", agent_pod(kubectl)["metadata"]["name"], "--container=monitor", namespace=AGENTS)


def await_output(core: client.CoreV1Api, cluster: DynamicClient, namespace: str, name: str, wanted: str) -> None:
    """Waits until a pod prints this line.

    The log is followed: no change of the pod follows a line, so whoever only watches the pod may miss it.
    """
    wait_until(
        cluster,
        POD,
        lambda pods: any(each["metadata"]["name"] == name and each["status"]["phase"] != "Pending" for each in pods),
        f"the start of {name}",
        namespace=namespace,
        timeout_seconds=SLOWEST_SECONDS,
    )
    response = core.read_namespaced_pod_log(
        name, namespace, follow=True, _preload_content=False, _request_timeout=SLOWEST_SECONDS
    )
    with closing(response):
        printed = []
        for line in response:
            printed.append(line.decode().rstrip("\n"))
            if printed[-1] == wanted:
                return
    pytest.fail(f"the log of {namespace}/{name} ended without {wanted!r}:\n" + "\n".join(printed))


@contextmanager
def neighbour(
    node: About, user: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, name: str, seconds: int = 0
) -> Iterator[dict[str, Any]]:
    """A pod that holds a limit on its GPU and asks for its leases again and again, until the context ends.

    Args:
        node: The node.
        user: The user of the namespace.
        core: The client of logs.
        cluster: The client of watches.
        name: Its name.
        seconds: How long it does so at least.

    Yields:
        Its output after its end; empty before.
    """
    printed: dict[str, Any] = {}
    client = f"python {SCRIPTS}/hostile_client.py {SOCKET} victim --gpus $NVIDIA_VISIBLE_DEVICES"
    script = f"(sleep {seconds}; until [ -e {END} ]; do sleep 0.2; done) | {client}"
    user.apply(pod(node, name, ["sh", "-c", script], gpus=1, cpu="500m"), namespace=NEIGHBOUR)
    try:
        await_output(core, cluster, NEIGHBOUR, name, "held")
        yield printed
        # In the namespace of the user: what follows the dashes is the command.
        user("exec", name, "--", "touch", END)
        ended(cluster, NEIGHBOUR, [name])
        printed |= json.loads(user("logs", name, namespace=NEIGHBOUR).strip().splitlines()[-1])
    finally:
        user("delete", "pod", name, "--ignore-not-found", "--wait=false", namespace=NEIGHBOUR)


@pytest.fixture(scope="module")
def attacked(
    node: About, kubectl: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, gpus: Machine
) -> Attacked:
    users = {each: kubectl.as_user(make_editor(node, kubectl, core, each)) for each in (NEIGHBOUR, ATTACKERS)}
    for namespace, user in users.items():
        put_scripts(user, namespace)
    agent = agent_pod(kubectl)
    (process, *_) = processes_of_container(agent["metadata"]["uid"], monitor_status(agent)["containerID"])
    with neighbour(node, users[NEIGHBOUR], core, cluster, "holder") as answers:
        (held,) = [each.uuid for each in gpus.describe().gpus if each.power_limit_watts == HELD_WATTS]
        before = AgentSeen(gpus, held, process).memory_kibibytes
        log_before = len(monitor_log(kubectl))
        with AgentSeen(gpus, held, process) as seen:
            names = start_attack(node, users[ATTACKERS], agent["status"]["podIP"])
            await_attack(cluster)
            with neighbour(node, users[NEIGHBOUR], core, cluster, "latecomer", LATECOMER_SECONDS) as late_answers:
                pass
            ended(cluster, ATTACKERS, names)
            reported = printed_by(users[ATTACKERS], names)
        log_bytes = len(monitor_log(kubectl)) - log_before
    return Attacked(
        reported=reported,
        neighbour=answers,
        latecomer=late_answers,
        seen=seen,
        memory_before_kibibytes=before,
        log_bytes=log_bytes,
        restarts=monitor_status(agent_pod(kubectl))["restartCount"] - monitor_status(agent)["restartCount"],
    )


def start_attack(node: About, user: ClusterCommand, address: str) -> list[str]:
    """Starts a pod for each attack; their names."""
    options = f"--connections 63 --seconds {ATTACK_SECONDS}"
    pods = {
        f"attack-{number}-{attack}": ["sh", "-c", f"python {SCRIPTS}/hostile_client.py {SOCKET} {attack} {options}"]
        for number, attack in enumerate(ATTACKS)
    }
    scraper = f"python {SCRIPTS}/hostile_scraper.py {address} {METRICS_PORT} --seconds {ATTACK_SECONDS}"
    pods["attack-8-scraper"] = ["sh", "-c", scraper]
    user.apply(*(pod(node, name, command) for name, command in pods.items()), namespace=ATTACKERS)
    return list(pods)


def await_attack(cluster: DynamicClient) -> None:
    """Waits until all attackers have started."""
    wait_until(
        cluster,
        POD,
        lambda pods: sum(each["status"]["phase"] != "Pending" for each in pods) == len(ATTACKS) + 1,
        "all attackers to start",
        namespace=ATTACKERS,
        timeout_seconds=SLOWEST_SECONDS,
    )


def printed_by(user: ClusterCommand, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """By attack, what each attacker printed; the pods are deleted."""
    reported: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        said = user("logs", name, namespace=ATTACKERS).strip().splitlines()
        reported.setdefault(name.rpartition("-")[2], []).append(json.loads(said[-1]))
        user("delete", "pod", name, "--wait=false", namespace=ATTACKERS)
    return reported


def test_every_attack_was_carried_out(attacked: Attacked) -> None:
    assert set(attacked.reported) == {*ATTACKS, "scraper"}
    assert all(each["opened"] > 0 for reported in attacked.reported.values() for each in reported), attacked.reported


def test_the_neighbour_keeps_its_limit(attacked: Attacked) -> None:
    assert attacked.seen.limits == {float(HELD_WATTS)}
    assert (attacked.neighbour["unheld"], attacked.neighbour["failed"]) == (0, 0), attacked.neighbour


def test_the_neighbour_is_answered_within_the_bound(attacked: Attacked) -> None:
    assert attacked.neighbour["asked"] > ATTACK_SECONDS, attacked.neighbour
    assert attacked.neighbour["longest_seconds"] <= MAX_ANSWER_SECONDS, attacked.neighbour


def test_a_pod_with_a_gpu_that_starts_during_the_attack_holds_its_limit(attacked: Attacked) -> None:
    assert (attacked.latecomer["unheld"], attacked.latecomer["failed"]) == (0, 0), attacked.latecomer
    assert attacked.latecomer["longest_seconds"] <= MAX_ANSWER_SECONDS, attacked.latecomer


def test_the_agents_resources_are_bounded(attacked: Attacked) -> None:
    growth = attacked.seen.memory_kibibytes - attacked.memory_before_kibibytes
    print(
        f"grew by {growth} KiB, {attacked.seen.descriptors} descriptors, {attacked.seen.threads} threads, "
        f"{attacked.log_bytes} B of log; longest answer {attacked.neighbour['longest_seconds']:.3f} s"
    )
    assert growth <= MAX_GROWTH_KIBIBYTES
    assert attacked.seen.descriptors <= MAX_DESCRIPTORS
    assert attacked.seen.threads <= MAX_THREADS
    assert attacked.log_bytes <= MAX_LOG_BYTES


def test_the_agent_does_not_restart(attacked: Attacked) -> None:
    assert attacked.restarts == 0


def test_the_agents_monitor_has_confined_itself(node: About, kubectl: ClusterCommand) -> None:
    assert "the monitor is confined" in monitor_log(kubectl)
