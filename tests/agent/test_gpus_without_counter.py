"""GPUs that report no energy, through a real agent: those before Volta, and drivers that refuse the counter."""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.agent_fixture import AgentFixture, until
from wattloop.gpus.agent import AgentConnection
from wattloop.gpus.agent_process import stop_agent
from wattloop.run.held_gpus import ProcessGpus

# Real time in a tenth of it: power is read once a second, and a reading covers ten seconds of the GPU.
SCALE = 10.0


@pytest.fixture
def old(folder: Path) -> Iterator[AgentFixture]:
    """Two K80s whose time runs."""
    state = nvml_simulator.create(
        folder / "gpus", model="K80", count=2, clock="scaled", scale=SCALE, permission="anyone"
    )
    with nvml_simulator.Machine(state) as gpus:
        yield AgentFixture(folder, gpus)


@pytest.fixture
def agent_of_old(old: AgentFixture) -> Iterator[AgentFixture]:
    with old.running(sample_interval=0.02):
        yield old


def exact_joules(fixture: AgentFixture) -> float:
    return fixture.gpus.describe().gpus[0].energy_microjoules / 1e6


def test_the_agent_integrates_the_power_and_bounds_the_error(agent_of_old: AgentFixture) -> None:
    uuid = agent_of_old.uuids[0]
    with AgentConnection(agent_of_old.socket) as connection:
        before = exact_joules(agent_of_old)
        first = connection.energy([uuid])[0]
        begin = exact_joules(agent_of_old)
        for intensity in (0.9, 0.3, 0.7):
            agent_of_old.gpus.occupy(uuid, work=8.0, intensity=intensity)
        end = exact_joules(agent_of_old)
        last = connection.energy([uuid])[0]
        after = exact_joules(agent_of_old)
    assert (first.energy_millijoules, last.energy_millijoules) == (None, None)
    joules = (last.cumulative_millijoules - first.cumulative_millijoules) / 1000
    uncertainty = last.uncertainty_since(first)
    print(f"{joules:.1f} J, {end - begin:.1f} to {after - before:.1f} J, uncertain by {uncertainty / 1000:.1f} J")
    assert 0 < uncertainty / 1000 < 0.5 * (after - before)
    # The GPU goes on using energy while it is read.
    error = uncertainty / 1000 + 1.0
    assert end - begin - error <= joules <= after - before + error


def test_a_training_reports_integrated_energy_with_its_uncertainty(agent_of_old: AgentFixture) -> None:
    gpus = ProcessGpus(str(agent_of_old.socket))
    gpus.begin()
    agent_of_old.gpus.occupy(agent_of_old.uuids, work=4.0, intensity=0.8)
    reported = gpus.energy()
    gpus.end()
    assert gpus.product == "Tesla K80"
    assert all(each.energy_millijoules > each.start_energy_millijoules for each in reported)
    assert all(each.uncertainty_millijoules is not None and each.uncertainty_millijoules > 0 for each in reported)


def test_a_driver_that_refuses_the_counter_is_integrated_too(agent_fixture: AgentFixture) -> None:
    agent_fixture.gpus.inject_fault("nvmlDeviceGetTotalEnergyConsumption", code=3, gpu=1)
    process = agent_fixture.start()
    with AgentConnection(agent_fixture.socket) as connection:
        readings = connection.energy(agent_fixture.uuids)
        streamed = next(iter(connection.stream(0.05, agent_fixture.uuids)))
    assert stop_agent(process) == 0
    assert [each.integrated is not None for each in readings] == [False, True, False]
    assert [each.energy_millijoules is None for each in streamed.gpus] == [False, True, False]
    assert streamed.gpus[1].instant_watts == pytest.approx(55.0)


def test_subscribers_get_power_at_their_interval(agent_of_old: AgentFixture) -> None:
    with AgentConnection(agent_of_old.socket) as connection:
        messages = list(itertools.islice(connection.stream(0.02, agent_of_old.uuids), 4))
    assert all(gpu.energy_millijoules is None and gpu.instant_watts for each in messages for gpu in each.gpus)
    assert len({each.gpus[0].begin_seconds for each in messages}) == 4


def test_integrated_energy_continues_over_a_restart_of_the_agent(old: AgentFixture) -> None:
    uuid, values = old.uuids[0], []
    for _ in range(2):
        process = old.start()
        with AgentConnection(old.socket) as connection:
            values.append(connection.energy([uuid])[0].cumulative_millijoules)
            until(lambda: connection.energy([uuid])[0].cumulative_millijoules > values[-1] + 100, "energy is used")
            values.append(connection.energy([uuid])[0].cumulative_millijoules)
        assert stop_agent(process) == 0
    assert values == sorted(values)
    assert values[2] >= values[1]


def test_the_command_monitor_integrates_and_shows_the_bound(old: AgentFixture) -> None:
    command = [sys.executable, "-c", "import sys; from wattloop.commands.main import main; sys.exit(main())", "monitor"]
    done = subprocess.run(
        [*command, "--seconds", "0.3", "--format", "json"],
        env=old.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    for gpu in json.loads(done.stdout)["gpus"]:
        assert gpu["energy_joules"] == pytest.approx(27.0 * gpu["duration_seconds"], rel=0.5)
        assert gpu["uncertainty_joules"] is not None
