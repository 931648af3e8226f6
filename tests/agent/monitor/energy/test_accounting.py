"""Energy per pod over kills of the monitor: a real monitor, simulated GPUs, a kubelet that lists their pods."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.agents.agent_fixture import AgentFixture, until
from support.agents.kubelet_server import KubeletServer, serving
from support.agents.processes import free_port, single_agent
from wattloop.agent_process import stop_agent

pytestmark = pytest.mark.processes

Labels = dict[str, str]


@dataclass
class Node:
    """An agent fixture whose agent runs in node mode."""

    agent_fixture: AgentFixture
    kubelet: KubeletServer
    address: str
    uids: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        folder = self.agent_fixture.folder
        return {
            **self.agent_fixture.environment,
            "WATTLOOP_AGENT_IDENTITY": "pod",
            "WATTLOOP_AGENT_KUBELET_SOCKET": str(folder / "kubelet.sock"),
            "WATTLOOP_AGENT_POD_LOGS": str(folder / "logs"),
            "WATTLOOP_AGENT_METRICS_BIND": self.address,
            "WATTLOOP_AGENT_SAMPLE_INTERVAL": "0.05",
            # Simulated time jumps ten seconds in one of ours: of them power tells nothing.
            "WATTLOOP_AGENT_COUNTER_INTERVAL": "0",
            "WATTLOOP_AGENT_MONITOR_STATE_DIRECTORY": str(folder / "ledger"),
        }

    def begin(self, name: str, ids: list[str]) -> None:
        uid = self.uids[name] = str(uuid.uuid4())
        (self.agent_fixture.folder / "logs" / f"default_{name}_{uid}").mkdir()
        self.kubelet.pods["default", name] = ids

    def end(self, name: str) -> None:
        del self.kubelet.pods["default", name]

    def scraped(self) -> dict[str, list[tuple[Labels, float]]]:
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}

    def joules(self, name: str) -> list[float]:
        """What a pod that runs has used, by GPU."""
        told = self.scraped()["wattloop_pod_gpu_energy_joules"]
        return [value for labels, value in told if labels["pod"] == name]

    def ledger(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.agent_fixture.folder / "ledger" / "energy.json").read_text())[
            "ledger"
        ]
        return content

    def intervals(self) -> dict[str, dict[str, Any]]:
        """The intervals of the ledger on disk, by pod."""
        path = self.agent_fixture.folder / "ledger" / "energy.json"
        return {interval["pod"]: interval for interval in self.ledger()["intervals"]} if path.exists() else {}


@pytest.fixture
def node(agent_fixture: AgentFixture) -> Iterator[Node]:
    (agent_fixture.folder / "logs").mkdir()
    with serving(agent_fixture.folder / "kubelet.sock") as kubelet:
        yield Node(agent_fixture, kubelet, f"127.0.0.1:{free_port()}")


def soon(holds: Callable[[], bool], what: str) -> None:
    def holds_already() -> bool:
        try:
            return holds()
        except (OSError, KeyError):
            return False

    until(holds_already, what)


def counters(agent_fixture: AgentFixture) -> list[int]:
    return [gpu.counter_millijoules for gpu in agent_fixture.gpus.describe().gpus]


def running(node: Node) -> Any:
    return single_agent(
        node.agent_fixture.socket, node.agent_fixture.state, environment=node.environment, log=node.agent_fixture.log
    )


def test_energy_is_told_by_pod_and_gpu_and_by_no_pod_that_has_ended(node: Node) -> None:
    agent_fixture = node.agent_fixture
    node.begin("trainer", agent_fixture.uuids[:1])
    node.begin("sharer", [f"{agent_fixture.uuids[2]}::0"])
    with running(node):
        soon(lambda: len(node.joules("trainer")) == len(node.joules("sharer")) == 1, "the pods are known")
        before = counters(agent_fixture)[0]
        agent_fixture.gpus.occupy([0, 2], work=3120.0, intensity=1.0)
        used = (counters(agent_fixture)[0] - before) / 1000
        soon(lambda: node.joules("trainer")[0] >= used, "the work is the trainer's")
        told = node.scraped()["wattloop_pod_gpu_energy_joules"]
        (labels,) = [labels for labels, _ in told if labels["pod"] == "trainer"]
        assert (labels["namespace"], labels["container"], labels["UUID"]) == ("default", "main", agent_fixture.uuids[0])
        assert labels["modelName"] == "NVIDIA A100-SXM4-80GB"
        assert {labels["pod"]: labels["shared"] for labels, _ in told} == {"trainer": "false", "sharer": "true"}
        accounted = {labels["UUID"]: value for labels, value in node.scraped()["wattloop_gpu_energy_accounted_joules"]}
        assert used <= node.joules("trainer")[0] <= accounted[agent_fixture.uuids[0]]
        node.end("trainer")
        soon(lambda: node.joules("trainer") == [], "a pod that has ended is no label any more")
        soon(lambda: node.intervals()["trainer"]["ended"], "its energy is kept until it is forgotten")


def test_a_monitor_that_is_killed_and_comes_again_has_lost_no_energy(node: Node) -> None:
    agent_fixture = node.agent_fixture
    node.begin("trainer", agent_fixture.uuids[:1])
    node.begin("other", agent_fixture.uuids[1:2])
    with running(node) as process:
        soon(lambda: len(node.joules("trainer")) == 1, "the pod is known")
        before = counters(agent_fixture)
        agent_fixture.gpus.occupy([0, 1], work=3120.0, intensity=1.0)
        soon(lambda: set(node.intervals()) == {"trainer", "other"}, "whose the GPUs are is written down")
        identity = node.ledger()["id"]
        process.kill()
        process.wait()
    agent_fixture.gpus.occupy([0, 1], work=31200.0, intensity=1.0)
    node.end("other")
    used = [after - start for start, after in zip(before, counters(agent_fixture), strict=True)]
    with running(node):
        soon(lambda: node.joules("trainer")[0] >= used[0] / 1000, "all of it is the trainer's")
        soon(lambda: node.intervals()["other"]["ended"], "the pod that ended meanwhile has ended")
        assert node.ledger()["id"] == identity
        other = node.intervals()["other"]
        estimate = other["end"][0] - other["start"][0]
        uncertain = other["start"][1] + other["end"][1]
        assert abs(estimate - used[1]) <= uncertain
        assert uncertain >= used[1] / 4, "when it ended is not known"


def test_a_monitor_that_is_killed_right_after_its_first_look_has_lost_no_energy(node: Node) -> None:
    agent_fixture = node.agent_fixture
    path = agent_fixture.folder / "ledger" / "energy.json"

    def looks() -> float:
        return max(agent_fixture.gpus.describe().calls.values(), default=0) / len(agent_fixture.uuids)

    with running(node) as process:
        # A look takes 0.05 s: by then the first one is long gone, however busy the machine is.
        until(lambda: path.exists() or looks() > 100, "the first look is written down")
        identity = node.ledger()["id"]
        assert [account["uuid"] for account in node.ledger()["accounts"]] == agent_fixture.uuids
        before = counters(agent_fixture)
        process.kill()
        process.wait()
    agent_fixture.gpus.occupy([0, 1, 2], work=3120.0, intensity=1.0)
    used = sum(counters(agent_fixture)) - sum(before)

    def accounted() -> float:
        return sum(value for _, value in node.scraped()["wattloop_gpu_energy_accounted_joules"])

    with running(node):
        soon(lambda: accounted() >= used / 1000, "what was used while there was no monitor is accounted for")
        assert node.ledger()["id"] == identity


def test_a_counter_that_begins_anew_and_a_driver_that_is_restarted_lose_no_energy(node: Node) -> None:
    agent_fixture = node.agent_fixture
    node.begin("trainer", agent_fixture.uuids[:1])

    def accounted() -> float:
        told = node.scraped()["wattloop_gpu_energy_accounted_joules"]
        return next(value for labels, value in told if labels["UUID"] == agent_fixture.uuids[0])

    def worked() -> int:
        begin = counters(agent_fixture)[0]
        agent_fixture.gpus.occupy(0, work=3120.0, intensity=1.0)
        return counters(agent_fixture)[0] - begin

    def struck(strike: Callable[[], None], used: int, resets: int) -> None:
        soon(lambda: accounted() >= used / 1000, "the work is accounted for")
        strike()
        told = "wattloop_gpu_energy_counter_resets"
        soon(lambda: node.scraped()[told][0][1] == resets, "the counter's fall is seen")

    with running(node):
        soon(lambda: len(node.joules("trainer")) == 1, "the pod is known")
        used = worked()
        struck(lambda: agent_fixture.gpus.reset_energy_counter(0), used, resets=1)
        used += worked()
        struck(agent_fixture.gpus.restart_driver, used, resets=2)
        used += worked()
        soon(lambda: node.joules("trainer")[0] >= used / 1000, "all of it is the trainer's")
        assert accounted() == pytest.approx(used / 1000, rel=0.05)
    begun_anew = [line for line in agent_fixture.log.read_text().splitlines() if "counter was reset" in line]
    assert [agent_fixture.uuids[0] in line for line in begun_anew].count(True) == 2


def test_a_driver_that_is_restarted_while_no_monitor_looks_loses_no_energy_though_its_counter_says_more(
    node: Node,
) -> None:
    agent_fixture = node.agent_fixture
    agent_fixture.gpus.restart_driver()
    node.begin("trainer", agent_fixture.uuids[:1])
    with running(node) as process:
        soon(lambda: len(node.joules("trainer")) == 1, "the pod is known")
        begin = counters(agent_fixture)[0]
        agent_fixture.gpus.occupy(0, work=3120.0, intensity=1.0)
        used = counters(agent_fixture)[0] - begin
        soon(lambda: node.joules("trainer")[0] >= used / 1000, "the work is accounted for")
        before = counters(agent_fixture)[0]
        assert stop_agent(process) == 0
    agent_fixture.gpus.restart_driver()
    agent_fixture.gpus.occupy(0, work=31200.0, intensity=1.0)
    used += counters(agent_fixture)[0]
    assert counters(agent_fixture)[0] > before, "the counter alone tells nothing"
    with running(node):
        soon(lambda: node.joules("trainer")[0] >= used / 1000, "all of it is the trainer's")
        assert [value for _, value in node.scraped()["wattloop_gpu_energy_counter_resets"]] == [1, 1, 1]
