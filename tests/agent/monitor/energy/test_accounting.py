"""Energy per pod over kills of the monitor: a real monitor, simulated GPUs, a kubelet that lists their pods."""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.kubelet_server import KubeletServer, serving
from support.agents.scraping import Scraped, scraped
from support.free_ports import free_port
from wattloop.gpus.agent_process import stop_agent

pytestmark = pytest.mark.processes


@dataclass
class Node:
    """An agent fixture whose agent runs in node mode."""

    agent_fixture: AgentFixture
    kubelet: KubeletServer
    address: str

    @property
    def file(self) -> Path:
        return self.agent_fixture.state / "monitor" / "energy.json"

    def running(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        # Simulated time jumps by ten seconds between samples, for which there is no power reading.
        readings = {"metrics_bind": self.address, "sample_interval": 0.05, "counter_interval": 0}
        return self.agent_fixture.running(**self.agent_fixture.node_settings, **readings)

    def begin(self, name: str, ids: list[str]) -> None:
        (self.agent_fixture.folder / "logs" / f"default_{name}_{uuid.uuid4()}").mkdir()
        self.kubelet.pods["default", name] = ids

    def end(self, name: str) -> None:
        del self.kubelet.pods["default", name]

    def scraped(self) -> Scraped:
        return scraped(self.address)

    def joules(self, name: str) -> list[float]:
        """Energy of a running pod, by GPU."""
        samples = self.scraped()["wattloop_pod_gpu_energy_joules"]
        return [value for labels, value in samples if labels["pod"] == name]

    def shared(self, name: str) -> str:
        """Whether a running pod shares a GPU."""
        (labels,) = [labels for labels, _ in self.scraped()["wattloop_pod_gpu_energy_joules"] if labels["pod"] == name]
        return labels["shared"]

    def accounted(self) -> dict[str, float]:
        """Energy by GPU."""
        return {labels["UUID"]: value for labels, value in self.scraped()["wattloop_gpu_energy_accounted_joules"]}

    def ledger(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.file.read_text())["ledger"]
        return content

    def intervals(self) -> dict[str, dict[str, Any]]:
        """The intervals of the ledger on disk, by pod."""
        return {interval["pod"]: interval for interval in self.ledger()["intervals"]} if self.file.exists() else {}


@pytest.fixture
def node(agent_fixture: AgentFixture) -> Iterator[Node]:
    (agent_fixture.folder / "logs").mkdir()
    with serving(agent_fixture.folder / "kubelet.sock") as kubelet:
        yield Node(agent_fixture, kubelet, f"127.0.0.1:{free_port()}")


def wait_for(holds: Callable[[], bool], what: str) -> None:
    def holds_without_error() -> bool:
        try:
            return holds()
        except (OSError, KeyError):
            return False

    until(holds_without_error, what)


def counters(agent_fixture: AgentFixture) -> list[int]:
    return [gpu.counter_millijoules for gpu in agent_fixture.gpus.describe().gpus]


def test_metrics_have_energy_by_pod_and_gpu_of_running_pods_only(node: Node) -> None:
    agent_fixture = node.agent_fixture
    node.begin("trainer", agent_fixture.uuids[:1])
    node.begin("sharer", [f"{agent_fixture.uuids[2]}::0"])
    with node.running():
        wait_for(lambda: len(node.joules("trainer")) == len(node.joules("sharer")) == 1, "the pods are known")
        samples = node.scraped()["wattloop_pod_gpu_energy_joules"]
        assert {labels["pod"]: labels["shared"] for labels, _ in samples} == {"trainer": "false", "sharer": "true"}
        before = counters(agent_fixture)[0]
        agent_fixture.gpus.occupy([0, 2], work=3120.0, intensity=1.0)
        used = (counters(agent_fixture)[0] - before) / 1000
        wait_for(lambda: node.joules("trainer")[0] >= used, "the trainer has the energy")
        samples = node.scraped()["wattloop_pod_gpu_energy_joules"]
        (labels,) = [labels for labels, _ in samples if labels["pod"] == "trainer"]
        assert (labels["namespace"], labels["container"], labels["UUID"]) == ("default", "main", agent_fixture.uuids[0])
        assert labels["modelName"] == "NVIDIA A100-SXM4-80GB"
        wait_for(lambda: node.shared("trainer") == "true", "it is seen that a process of no pod works on its GPU")
        assert used <= node.joules("trainer")[0] <= node.accounted()[agent_fixture.uuids[0]]
        node.end("trainer")
        wait_for(lambda: node.joules("trainer") == [], "the ended pod has no series")
        wait_for(lambda: node.intervals()["trainer"]["ended"], "its energy stays in the ledger")


def test_a_monitor_that_is_killed_and_restarted_loses_no_energy(node: Node) -> None:
    agent_fixture = node.agent_fixture
    node.begin("trainer", agent_fixture.uuids[:1])
    node.begin("other", agent_fixture.uuids[1:2])
    with node.running() as process:
        wait_for(lambda: len(node.joules("trainer")) == 1, "the pod is known")
        before = counters(agent_fixture)
        agent_fixture.gpus.occupy([0, 1], work=3120.0, intensity=1.0)
        wait_for(lambda: set(node.intervals()) == {"trainer", "other"}, "the assignments are written")
        identity = node.ledger()["id"]
        process.kill()
        process.wait()
    agent_fixture.gpus.occupy([0, 1], work=31200.0, intensity=1.0)
    node.end("other")
    used = [after - start for start, after in zip(before, counters(agent_fixture), strict=True)]
    with node.running():
        wait_for(lambda: node.joules("trainer")[0] >= used[0] / 1000, "the trainer has all of the energy")
        wait_for(lambda: node.intervals()["other"]["ended"], "the other pod has ended")
        assert node.ledger()["id"] == identity
        other = node.intervals()["other"]
        estimate = other["end"][0] - other["start"][0]
        uncertain = other["start"][1] + other["end"][1]
        assert abs(estimate - used[1]) <= uncertain
        assert uncertain >= used[1] / 4, "the time of its end is unknown"


@pytest.mark.exhaustive
def test_a_monitor_killed_right_after_its_first_sampling_loses_no_energy(node: Node) -> None:
    agent_fixture = node.agent_fixture
    with node.running() as process:
        until(node.file.exists, "the first sampling is written")
        identity = node.ledger()["id"]
        assert [account["uuid"] for account in node.ledger()["accounts"]] == agent_fixture.uuids
        before = counters(agent_fixture)
        process.kill()
        process.wait()
    agent_fixture.gpus.occupy([0, 1, 2], work=3120.0, intensity=1.0)
    used = sum(counters(agent_fixture)) - sum(before)
    with node.running():
        wait_for(lambda: sum(node.accounted().values()) >= used / 1000, "the energy without a monitor is accounted for")
        assert node.ledger()["id"] == identity


def test_a_counter_reset_and_a_driver_restart_lose_no_energy(node: Node) -> None:
    agent_fixture = node.agent_fixture
    node.begin("trainer", agent_fixture.uuids[:1])

    def accounted() -> float:
        return node.accounted()[agent_fixture.uuids[0]]

    def worked() -> int:
        begin = counters(agent_fixture)[0]
        agent_fixture.gpus.occupy(0, work=3120.0, intensity=1.0)
        return counters(agent_fixture)[0] - begin

    def reset_after(reset: Callable[[], None], used: int, resets: int) -> None:
        wait_for(lambda: accounted() >= used / 1000, "the work is accounted for")
        reset()
        samples = "wattloop_gpu_energy_counter_resets"
        wait_for(lambda: node.scraped()[samples][0][1] == resets, "the reset is detected")

    with node.running():
        wait_for(lambda: len(node.joules("trainer")) == 1, "the pod is known")
        used = worked()
        reset_after(lambda: agent_fixture.gpus.reset_energy_counter(0), used, resets=1)
        used += worked()
        reset_after(agent_fixture.gpus.restart_driver, used, resets=2)
        used += worked()
        wait_for(lambda: node.joules("trainer")[0] >= used / 1000, "the trainer has all of the energy")
        assert accounted() == pytest.approx(used / 1000, rel=0.05)
    resets_logged = [line for line in agent_fixture.log.read_text().splitlines() if "counter was reset" in line]
    assert [agent_fixture.uuids[0] in line for line in resets_logged].count(True) == 2


def test_a_driver_restart_without_a_monitor_loses_no_energy_although_the_counter_is_higher(node: Node) -> None:
    agent_fixture = node.agent_fixture
    agent_fixture.gpus.restart_driver()
    node.begin("trainer", agent_fixture.uuids[:1])
    with node.running() as process:
        wait_for(lambda: len(node.joules("trainer")) == 1, "the pod is known")
        begin = counters(agent_fixture)[0]
        agent_fixture.gpus.occupy(0, work=3120.0, intensity=1.0)
        used = counters(agent_fixture)[0] - begin
        wait_for(lambda: node.joules("trainer")[0] >= used / 1000, "the work is accounted for")
        before = counters(agent_fixture)[0]
        assert stop_agent(process) == 0
    agent_fixture.gpus.restart_driver()
    agent_fixture.gpus.occupy(0, work=31200.0, intensity=1.0)
    used += counters(agent_fixture)[0]
    assert counters(agent_fixture)[0] > before, "the counter alone does not show the restart"
    with node.running():
        wait_for(lambda: node.joules("trainer")[0] >= used / 1000, "the trainer has all of the energy")
        assert [value for _, value in node.scraped()["wattloop_gpu_energy_counter_resets"]] == [1, 1, 1]
