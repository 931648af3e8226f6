"""Runs on simulated GPUs with a real agent: energy in reports, and power limits held and released."""

import itertools
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from threading import Thread

import pytest

import nvml_simulator
from support.agents.agent_fixture import until
from support.agents.simulated_node import simulated_node
from support.reporting.report_server import ReportServer
from wattloop import Run
from wattloop.errors import UsageError
from wattloop.gpus.agent_process import running_agent
from wattloop.run.held_gpus import ProcessGpus

WORK_OF_A_SECOND = 312.0  # teraflop of an A100 in a second at its highest clock


@dataclass(frozen=True)
class Node:
    """Simulated GPUs and their agent."""

    gpus: nvml_simulator.Machine
    state: Path
    socket: Path

    @property
    def limits(self) -> list[float]:
        return [gpu.power_limit_watts for gpu in self.gpus.describe().gpus]

    def variables(self, report_server: ReportServer, **variables: str) -> dict[str, str]:
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
    with simulated_node(2) as simulated:
        yield Node(simulated.gpus, simulated.state, simulated.socket)


def test_reports_carry_cumulative_energy_of_every_gpu(node: Node, report_server: ReportServer) -> None:
    with Run(environment=node.variables(report_server)) as run:
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


def test_a_run_holds_the_limit_of_the_decision_until_it_ends(node: Node, report_server: ReportServer) -> None:
    with Run(environment=node.variables(report_server, WATTLOOP_POWER_LIMIT_WATTS="250.0")) as run:
        assert node.limits == [250.0, 250.0]
        run.report(metric=0.5)
    assert node.limits == [400.0, 400.0]
    assert {report["power_limit_watts"] for report in report_server.reports} == {250.0}


def test_a_gpu_that_is_reset_during_a_run_loses_no_report_and_keeps_its_energy(
    node: Node, report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Run(environment=node.variables(report_server)) as run:
        for epoch in run.epochs():
            node.gpus.occupy([0, 1], work=10 * WORK_OF_A_SECOND, intensity=0.8)
            if epoch == 1:
                node.gpus.reset_energy_counter(0)
            node.gpus.occupy([0, 1], work=10 * WORK_OF_A_SECOND, intensity=0.8)
            run.report(metric=0.5)
    assert [report["epoch"] for report in report_server.reports] == [0, 1, 2, 3, 3]
    energies = [{gpu["uuid"]: gpu["energy_millijoules"] for gpu in each["gpus"]} for each in report_server.reports]
    for before, after in itertools.pairwise(energies):
        assert all(after[uuid] >= before[uuid] for uuid in before)
    first, other = (
        gpu["energy_millijoules"] - gpu["start_energy_millijoules"] for gpu in report_server.reports[-1]["gpus"]
    )
    assert 0.6 < min(first, other) / max(first, other) < 0.95, "a part of one epoch is in no counter"
    assert [each for each in caplog.messages if "its counter began again" in each]
    reset, whole = (gpu["uncertainty_millijoules"] for gpu in report_server.reports[-1]["gpus"])
    assert other - first <= reset
    assert whole is None


def test_a_limit_that_a_reload_of_the_driver_has_ended_is_held_again_and_its_window_measured_again(
    report_server: ReportServer,
) -> None:
    with simulated_node(2) as simulated:
        node = Node(simulated.gpus, simulated.state, simulated.socket)
        with Run(environment=node.variables(report_server, WATTLOOP_POWER_LIMIT_WATTS="250.0")) as run:
            run.report(metric=0.5)
            assert not run.gpus.was_interrupted()
            node.gpus.restart_driver()
            assert node.limits == [400.0, 400.0]

            def held_again() -> bool:
                return run.gpus.totals() is not None and run.gpus.limit_watts is not None

            until(held_again, "the agent reads and sets the GPUs again")
            assert node.limits == [250.0, 250.0]
            assert run.gpus.was_interrupted()
            run.report(metric=0.5)
        assert node.limits == [400.0, 400.0]
    assert {report["power_limit_watts"] for report in report_server.reports} == {250.0}


OTHER_TRAINING = """
import os, sys, nvml_simulator
with nvml_simulator.Machine(sys.argv[1]) as gpus:
    gpus.occupy(0, 312.0, 0.8)
    print("working", flush=True)
    sys.stdin.read()
"""


def test_a_gpu_that_another_training_uses_is_shared_from_then_on_and_that_is_said_once(
    node: Node, report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Run(environment=node.variables(report_server)) as run:
        for epoch in run.epochs():
            if epoch == 1:
                # A program that this process starts is its own; one that another process started is not.
                command = f"exec 3<&0; '{sys.executable}' -c '{OTHER_TRAINING}' '{node.state}' <&3 & "
                with subprocess.Popen(["sh", "-c", command], stdin=PIPE, stdout=PIPE, text=True) as shell:
                    assert shell.stdout.readline() == "working\n"
                    until(lambda: any(gpu.shared for gpu in run.gpus.energy()), "the other training is seen")
            run.report(metric=0.5)
    gpus = [[gpu["shared"] for gpu in report["gpus"]] for report in report_server.reports]
    assert gpus == [[False, False], [False, False], [True, False], [True, False], [True, False]]
    (message,) = [each for each in caplog.messages if "is used by others" in each]
    assert "an upper bound" in message
    assert "(python" in message


def test_a_failed_run_releases_its_limit(node: Node, report_server: ReportServer) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        Run(environment=node.variables(report_server, WATTLOOP_POWER_LIMIT_WATTS="250")),
    ):
        raise KeyboardInterrupt
    assert node.limits == [400.0, 400.0]


def test_a_run_continues_without_a_limit_that_the_gpu_rejects(
    node: Node, report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Run(environment=node.variables(report_server, WATTLOOP_POWER_LIMIT_WATTS="50.0")) as run:
        run.report(metric=0.5)
    assert node.limits == [400.0, 400.0]
    assert {report["power_limit_watts"] for report in report_server.reports} == {None}
    assert "the power limit of 50 W is not held" in caplog.text


@pytest.mark.parametrize(("selector", "chosen"), [("MaxSlowdown", 400.0), ("Energy", None)])
def test_a_run_measures_every_limit_from_the_maximum_and_holds_the_best(
    node: Node, report_server: ReportServer, selector: str, chosen: float | None
) -> None:
    variables = node.variables(report_server, WATTLOOP_PROFILE_POWER_LIMITS="1", WATTLOOP_POWER_SELECTOR=selector)
    with Run(environment=variables | {"WATTLOOP_MAX_EPOCHS": "40", "WATTLOOP_MAX_SLOWDOWN_PERCENT": "0"}) as run:
        for _ in run.epochs():  # an epoch of about three seconds, less than a window
            for samples in (64, 64, 22):
                node.gpus.occupy([0, 1], work=WORK_OF_A_SECOND * samples / 64, intensity=0.9)
                run.step(samples)
            run.report(metric=0.1)
    profile = report_server.reports[-1]["profile"]
    limits = [point["power_limit_watts"] for point in profile]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] == 400.0
    # Each window lasts 5 s; its time is corrected for the temperature.
    assert all(point["time_seconds"] >= 4.9 for point in profile)
    # The work of an epoch is the same in every window; only the limit differs.
    seconds_per_epoch = [point["time_seconds"] / point["epochs"] for point in profile]
    assert seconds_per_epoch == pytest.approx(sorted(seconds_per_epoch), rel=0.03)
    held = report_server.reports[-1]["power_limit_watts"]
    cheapest = min(profile, key=lambda point: point["energy_joules"] / point["epochs"])["power_limit_watts"]
    assert held == (cheapest if chosen is None else chosen)
    assert node.limits == [400.0, 400.0]


def test_a_run_that_fails_inside_an_epoch_reports_a_correct_profile(node: Node, report_server: ReportServer) -> None:
    def train() -> None:
        with Run(environment=node.variables(report_server, WATTLOOP_PROFILE_POWER_LIMITS="1")) as run:
            for step in range(15):
                node.gpus.occupy([0, 1], work=WORK_OF_A_SECOND, intensity=0.9)
                run.step()
                if step == 9:
                    run.report(metric=0.1)
            raise MemoryError

    with pytest.raises(MemoryError):
        train()
    complete, incomplete = report_server.reports[-2:]
    assert incomplete["profile"][0] == complete["profile"][0]


def test_a_run_that_begins_during_a_restart_of_the_agent_is_measured(node: Node) -> None:
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


def test_a_run_does_not_wait_for_a_socket_in_a_missing_folder(tmp_path: Path) -> None:
    gpus = ProcessGpus(str(tmp_path / "no folder" / "agent.sock"), agent_start_seconds=math.inf)
    gpus.begin()
    assert gpus.count == 0


def test_a_run_waits_for_an_agent_until_its_timeout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gpus = ProcessGpus(str(tmp_path / "agent.sock"), agent_start_seconds=0.0)
    gpus.begin()
    assert gpus.count == 0
    assert "energy is not measured" in caplog.text


@pytest.mark.parametrize(
    ("launched", "devices"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_a_process_measures_and_holds_only_the_gpus_that_it_uses(
    node: Node, report_server: ReportServer, launched: dict[str, str], devices: list[int]
) -> None:
    uuids = [gpu.uuid for gpu in node.gpus.describe().gpus]
    with Run(environment=node.variables(report_server, WATTLOOP_POWER_LIMIT_WATTS="250.0", **launched)) as run:
        assert node.limits == [250.0 if index in devices else 400.0 for index in (0, 1)]
        assert (run.environment.rank, run.environment.ranks) == ((1, 2) if "RANK" in launched else (0, 1))
    last = report_server.reports[-1]
    assert [gpu["uuid"] for gpu in last["gpus"]] == [uuids[index] for index in devices]
    assert last["max_power_limit_watts"] == 400.0 * len(devices)
    assert (last["rank"], last["ranks"]) == (1, 2) if "RANK" in launched else (0, 1)


def test_a_script_may_choose_its_gpus(node: Node, report_server: ReportServer) -> None:
    variables = node.variables(report_server, WATTLOOP_POWER_LIMIT_WATTS="250.0")
    with Run(gpus=[1], environment=variables):
        assert node.limits == [400.0, 250.0]
    with pytest.raises(UsageError, match="GPU 2 is not offered"), Run(gpus=[2], environment=variables):
        pass
