"""The zeus monitor and plain nvidia-ml-py beside the agent, on the simulated library."""

import json
import subprocess
import sys
from typing import Any

import pytest

from support.agents.agent_fixture import AgentFixture
from wattloop.gpus.agent import AgentConnection

pytestmark = pytest.mark.processes

HELD_WATTS = 250.0
COUNTER_STEP_SECONDS = 0.1
# A trainer: our client holds a limit, zeus measures two windows (one within the other), pynvml reads what it likes.
TRAINER = """
import json, sys
import pynvml
from zeus.monitor import ZeusMonitor
import nvml_simulator
from wattloop.gpus.agent import AgentConnection

agent = AgentConnection(sys.argv[1])
uuid = sys.argv[2]
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
monitor = ZeusMonitor()
agent.hold_limit([uuid], float(sys.argv[3]))

def counters():
    (reading,) = agent.energy([uuid])
    with nvml_simulator.Machine(sys.argv[4]) as machine:
        exact = machine.describe().gpus[0].energy_microjoules / 1e6
    plain = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
    return {"agent": reading.energy_millijoules / 1e3, "exact": exact, "plain": plain}

seen = [counters()]
monitor.begin_window("training", sync_execution=False)
nvml_simulator.occupy(0, work=312.0, intensity=1.0)
seen.append(counters())
monitor.begin_window("step", sync_execution=False)
nvml_simulator.occupy(0, work=312.0 * 3, intensity=0.8)
step = monitor.end_window("step", sync_execution=False)
seen.append(counters())
nvml_simulator.occupy(0, work=312.0, intensity=0.3)
training = monitor.end_window("training", sync_execution=False)
seen.append(counters())
print(json.dumps({
    "gpus": monitor.gpu_indices,
    "training": training.gpu_energy[0],
    "step": step.gpu_energy[0],
    "seen": seen,
    "enforced_watts": pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
    "name": pynvml.nvmlDeviceGetName(handle),
}))
"""
# Zeus's own way to a power limit, without a word to the agent.
OPTIMIZER = """
import sys
from zeus.device import get_gpus
get_gpus().set_power_management_limit(0, int(sys.argv[1]))
"""


def output_of(script: str, agent_fixture: AgentFixture, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        env=agent_fixture.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_zeus_monitor_and_plain_pynvml_measure_beside_the_agent_what_the_gpu_used(
    agent_fixture: AgentFixture,
) -> None:
    with agent_fixture.running():
        answer = output_of(
            TRAINER,
            agent_fixture,
            str(agent_fixture.socket),
            agent_fixture.uuids[0],
            str(HELD_WATTS),
            str(agent_fixture.gpus.path),
        )
    result: dict[str, Any] = json.loads(answer)
    assert result["gpus"] == [0, 1, 2]
    assert result["name"] == "NVIDIA A100-SXM4-80GB"
    assert result["enforced_watts"] == HELD_WATTS, "held while zeus measures"
    begin, step_begin, step_end, end = result["seen"]
    for window, first, last in (("training", begin, end), ("step", step_begin, step_end)):
        used = {source: last[source] - first[source] for source in first}
        assert result[window] == pytest.approx(used["plain"], abs=1e-6), "zeus tells what NVML's counter says"
        assert result[window] == pytest.approx(used["agent"], abs=1e-6), "and so does the agent"
        # The counter is exact where it steps: at either end of a window, up to a step of its power is not in it yet.
        assert abs(result[window] - used["exact"]) <= HELD_WATTS * COUNTER_STEP_SECONDS
        assert used["exact"] > 20 * HELD_WATTS * COUNTER_STEP_SECONDS, "the window is long enough to say something"
    assert agent_fixture.limits == [400, 400, 400], "the trainer is gone, its limit given back"


def test_a_limit_that_zeus_sets_is_reported_and_left(agent_fixture: AgentFixture) -> None:
    with agent_fixture.running(), AgentConnection(agent_fixture.socket) as connection:
        connection.hold_limit(agent_fixture.uuids, HELD_WATTS)
        output_of(OPTIMIZER, agent_fixture, "150000")
        assert agent_fixture.limits == [150, HELD_WATTS, HELD_WATTS]
        assert {gpu.power_limits.current_watts for gpu in connection.gpus()[:1] if gpu.power_limits} == {150}
        connection.release()
        assert agent_fixture.limits == [150, 400, 400]
    assert "another actor has set it" in agent_fixture.log.read_text()
