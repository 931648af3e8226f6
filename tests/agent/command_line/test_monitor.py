"""``wattloop monitor`` as a user runs it."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from support.agents.agent_fixture import AgentFixture
from support.test_sets.parameters import exhaustive_after
from wattloop_agent.command_line.monitor import usage_between, usage_table
from wattloop_agent.monitor.gpu_sampler import GpuStatus


def monitor(agent_fixture: AgentFixture, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from wattloop.commands.main import main; sys.exit(main())"]
    return subprocess.run(
        [*command, "monitor", *arguments], env=agent_fixture.environment, capture_output=True, text=True, check=False
    )


def test_json_has_each_gpu_and_the_sum(agent_fixture: AgentFixture) -> None:
    agent_fixture.gpus.occupy(0, work=312.0, intensity=1.0)
    done = monitor(agent_fixture, "--seconds", "0.01", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["energy_joules"] == 0.0, "the virtual clock stood still"
    assert [gpu["uuid"] for gpu in document["gpus"]] == agent_fixture.uuids
    assert {gpu["power_limit_watts"] for gpu in document["gpus"]} == {400.0}
    assert {gpu["mean_power_watts"] for gpu in document["gpus"]} == {None}


def test_a_counter_reset_never_yields_negative_energy() -> None:
    def condition(millijoules: int, seconds: float) -> GpuStatus:
        return GpuStatus("GPU-0", "A100", seconds, millijoules, 55.0, 400.0, 400.0, 210, "")

    (usage,) = usage_between([condition(9000, 1.0)], [condition(20, 3.0)])
    assert (usage.energy_joules, usage.mean_power_watts) == (None, None)
    assert "counter was reset" in usage.now.problem
    (usage,) = usage_between([condition(9000, 1.0)], [condition(9110, 3.0)])
    assert (usage.energy_joules, usage.mean_power_watts, usage.now.problem) == (0.11, 0.055, "")


def test_a_pipe_gets_a_table_too(agent_fixture: AgentFixture) -> None:
    done = monitor(agent_fixture, "--seconds", "0.01")
    assert done.returncode == 0
    assert "GPU energy" in done.stdout
    assert done.stdout.count("A100") >= 3


@pytest.mark.parametrize("seconds", exhaustive_after(["nan", "0", "-1", "x", "1e300"]))
def test_an_invalid_number_of_seconds_is_a_usage_error(agent_fixture: AgentFixture, seconds: str) -> None:
    done = monitor(agent_fixture, f"--seconds={seconds}")
    assert done.returncode == 2
    assert "--seconds" in done.stderr


def test_without_a_driver_it_says_what_is_missing(agent_fixture: AgentFixture) -> None:
    agent_fixture.gpus.path.rename(agent_fixture.folder / "elsewhere")
    done = monitor(agent_fixture, "--seconds", "0.01")
    assert done.returncode == 1
    assert "install the NVIDIA driver" in done.stderr


def test_control_characters_in_a_gpus_name_do_not_reach_the_terminal() -> None:
    name = "[red]A100[/red]\x1b[2J\n\u202e"
    condition = GpuStatus("GPU-0", name, 1.0, 9000, 55.0, 400.0, 400.0, 210, "")
    stream = io.StringIO()
    table = usage_table(usage_between([condition], [condition]), {1: "lost\x1b]0;owned\x07"})
    Console(file=stream, width=200).print(table)
    assert stream.getvalue().replace("\n", "").isprintable()
    assert "[red]A100[/red]\\x1b[2J\\n\\u202e" in stream.getvalue()
