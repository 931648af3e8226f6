"""A run on simulated GPUs behind a real agent: energy in the reports, limits held and given back."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

import nvml_simulator
from support.reporting.report_server import ReportServer
from wattloop import Run
from wattloop.agent_process import running_agent
from wattloop.gpus import ProcessGpus

WORK_OF_A_SECOND = 312.0  # teraflop: what an A100 does in a second at its highest clock


@dataclass(frozen=True)
class Node:
    """GPUs and the agent that looks after them."""

    gpus: nvml_simulator.Machine
    state: Path
    socket: Path

    @property
    def limits(self) -> list[float]:
        return [gpu.power_limit_watts for gpu in self.gpus.describe().gpus]

    def told(self, report_server: ReportServer, **variables: str) -> dict[str, str]:
        return {
            "WATTLOOP_JOB": "team/digits",
            "WATTLOOP_BATCH_SIZE": "64",
            "WATTLOOP_MAX_EPOCHS": "3",
            "WATTLOOP_REPORT_URL": report_server.url,
            "WATTLOOP_AGENT_SOCKET": str(self.socket),
            **variables,
        }


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    # A socket's path has 107 bytes at most; pytest's own folders are longer.
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as name:
        folder = Path(name)
        state = nvml_simulator.create(folder / "gpus", model="A100", count=2, clock="virtual", permission="anyone")
        environment = {"PATH": "/usr/bin:/bin", **nvml_simulator.environment(state)}
        socket = folder / "agent.sock"
        with (
            nvml_simulator.Machine(state) as gpus,
            running_agent(socket, folder / "state", environment=environment, log=folder / "agent.log"),
        ):
            yield Node(gpus, state, socket)


def test_reports_carry_cumulative_energy_of_every_gpu(node: Node, report_server: ReportServer) -> None:
    with Run(environment=node.told(report_server)) as run:
        for _ in run.epochs():
            node.gpus.occupy([0, 1], work=10 * WORK_OF_A_SECOND, intensity=0.8)
            run.report(metric=0.5)
    first, *_, last = report_server.reports
    uuids = sorted(gpu.uuid for gpu in node.gpus.describe().gpus)
    assert sorted(gpu["uuid"] for gpu in last["gpus"]) == uuids
    assert last["gpu_product"].startswith("NVIDIA A100")
    assert last["max_power_limit_watts"] == 800.0
    for before, after in zip(first["gpus"], last["gpus"], strict=True):
        assert after["start_energy_millijoules"] == before["start_energy_millijoules"]
        seconds = after["time_seconds"] - after["start_time_seconds"]
        watts = (after["energy_millijoules"] - after["start_energy_millijoules"]) / 1000 / seconds
        assert seconds > 25
        assert 100 < watts < 400


def test_the_limit_of_the_decision_is_held_while_the_run_lasts(node: Node, report_server: ReportServer) -> None:
    with Run(environment=node.told(report_server, WATTLOOP_POWER_LIMIT_WATTS="250.0")) as run:
        assert node.limits == [250.0, 250.0]
        run.report(metric=0.5)
    assert node.limits == [400.0, 400.0]
    assert {report["power_limit_watts"] for report in report_server.reports} == {250.0}


def test_a_run_that_fails_gives_its_gpus_back(node: Node, report_server: ReportServer) -> None:
    with pytest.raises(KeyboardInterrupt), Run(environment=node.told(report_server, WATTLOOP_POWER_LIMIT_WATTS="250")):
        raise KeyboardInterrupt
    assert node.limits == [400.0, 400.0]


def test_a_limit_that_the_gpu_refuses_is_left_out_of_the_run(
    node: Node, report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Run(environment=node.told(report_server, WATTLOOP_POWER_LIMIT_WATTS="50.0")) as run:
        run.report(metric=0.5)
    assert node.limits == [400.0, 400.0]
    assert {report["power_limit_watts"] for report in report_server.reports} == {None}
    assert "the power limit of 50 W is not held" in caplog.text


@pytest.mark.parametrize(("selector", "chosen"), [("Time", 400.0), ("Energy", None)])
def test_every_limit_is_measured_from_the_maximum_and_the_best_is_held(
    node: Node, report_server: ReportServer, selector: str, chosen: float | None
) -> None:
    told = node.told(report_server, WATTLOOP_PROFILE_POWER_LIMITS="1", WATTLOOP_POWER_SELECTOR=selector)
    with Run(environment=told | {"WATTLOOP_MAX_EPOCHS": "40"}) as run:
        for _ in run.epochs():  # of about three seconds each, less than a window
            for samples in (64, 64, 22):
                node.gpus.occupy([0, 1], work=WORK_OF_A_SECOND * samples / 64, intensity=0.9)
                run.step(samples)
            run.report(metric=0.1)
    profile = report_server.reports[-1]["profile"]
    limits = [point["power_limit_watts"] for point in profile]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] == 400.0
    assert all(point["time_seconds"] >= 5 for point in profile)
    # An epoch takes the same work in every window: what differs between windows is the limit alone.
    seconds_per_epoch = [point["time_seconds"] / point["epochs"] for point in profile]
    assert seconds_per_epoch == pytest.approx(sorted(seconds_per_epoch), rel=0.03)
    held = report_server.reports[-1]["power_limit_watts"]
    cheapest = min(profile, key=lambda point: point["energy_joules"] / point["epochs"])["power_limit_watts"]
    assert held == (cheapest if chosen is None else chosen)
    assert node.limits == [400.0, 400.0]


def test_a_run_that_breaks_off_inside_an_epoch_keeps_its_profile_right(node: Node, report_server: ReportServer) -> None:
    def train() -> None:
        with Run(environment=node.told(report_server, WATTLOOP_PROFILE_POWER_LIMITS="1")) as run:
            for step in range(15):
                node.gpus.occupy([0, 1], work=WORK_OF_A_SECOND, intensity=0.9)
                run.step()
                if step == 9:
                    run.report(metric=0.1)
            raise MemoryError

    with pytest.raises(MemoryError):
        train()
    whole, broken = report_server.reports[-2:]
    assert broken["profile"][0] == whole["profile"][0]


def test_a_run_that_begins_while_its_agent_is_replaced_is_measured(node: Node) -> None:
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as name:
        folder = Path(name)
        environment = {
            "PATH": "/usr/bin:/bin",
            **nvml_simulator.environment(node.state),
            "WATTLOOP_AGENT_LOCK_DIRECTORY": str(folder / "locks"),
        }
        gpus = ProcessGpus(str(folder / "agent.sock"))
        beginning = Thread(target=gpus.begin)
        beginning.start()
        with running_agent(folder / "agent.sock", folder / "state", environment=environment, log=folder / "log"):
            beginning.join()
            assert gpus.count == 2
            gpus.end()


def test_nobody_is_waited_for_where_no_socket_can_come(tmp_path: Path) -> None:
    gpus = ProcessGpus(str(tmp_path / "no folder" / "agent.sock"), arrival_seconds=math.inf)
    gpus.begin()
    assert gpus.count == 0


def test_a_run_waits_for_an_agent_no_longer_than_it_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gpus = ProcessGpus(str(tmp_path / "agent.sock"), arrival_seconds=0.0)
    gpus.begin()
    assert gpus.count == 0
    assert "energy is not measured" in caplog.text
