"""An agent that is killed in the middle of a window loses none of its energy."""

import subprocess
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.agent_fixture import AgentFixture, until
from wattloop.energy_monitor import EnergyMonitor
from wattloop.energy_monitor.process_sampler import ProcessSampler
from wattloop.energy_monitor.sources import AgentSource
from wattloop.gpus.agent_process import stop_agent

pytestmark = pytest.mark.processes

WORK_OF_A_SECOND = 989.0


def test_a_window_that_an_agent_dies_in_has_all_of_its_energy(folder: Path) -> None:
    state = nvml_simulator.create(folder / "gpus", model="H200", count=1, clock="wall", permission="anyone")
    with nvml_simulator.Machine(state) as gpus:
        node = AgentFixture(folder, gpus)

        def start() -> subprocess.Popen[bytes]:
            return node.start()

        first = start()
        sampler = ProcessSampler(lambda: AgentSource(str(node.socket), {}))
        sampler.start()
        sampler.wait_until_open()
        monitor = EnergyMonitor._with_sampler(sampler)
        sampler.add_user(monitor)

        def edges() -> int:
            timeline = sampler._timelines.get(node.uuids[0])
            return 0 if timeline is None else len(timeline._joules)

        until(lambda: edges() > 10, "the counter has advanced ten times")
        exact = gpus.describe().gpus[0].energy_microjoules
        monitor.begin_window("epoch")
        gpus.occupy(0, WORK_OF_A_SECOND, 0.5)
        first.kill()
        first.wait()
        gpus.occupy(0, WORK_OF_A_SECOND, 0.8)
        second = start()
        before = edges()
        until(lambda: edges() > before + 10, "the stream of the next agent")
        gpus.occupy(0, WORK_OF_A_SECOND, 0.2)
        measurement = monitor.end_window("epoch")
        exact = gpus.describe().gpus[0].energy_microjoules - exact
        energy = measurement.total_energy_joules
        sampler.stop()
        assert stop_agent(second) == 0
    assert measurement.complete, measurement.reason
    assert energy == pytest.approx(exact / 1e6, rel=0.02, abs=5 * measurement.uncertainty_joules)
