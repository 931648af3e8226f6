"""Whatever process is killed, every GPU is restored, or held for a living owner."""

import os
import signal
import subprocess
import sys

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, HEARTBEAT_TIMEOUT_SECONDS, AgentFixture, until
from support.agents.processes import children_of, holding_process, wait_for_end
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentConnection
from wattloop.gpus.agent_process import stop_agent

pytestmark = pytest.mark.processes

FOUND = [400.0, 400.0, 400.0]


def started(agent_fixture: AgentFixture) -> tuple[subprocess.Popen[bytes], int]:
    """An agent, and its power controller's pid."""
    process = agent_fixture.start()
    (power_controller,) = children_of(process.pid)
    return process, power_controller


def kill_together(process: subprocess.Popen[bytes], power_controller: int) -> None:
    """Kill an agent's processes, of which neither sees the other's end."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (power_controller, process.pid):
            os.kill(pid, number)
    process.wait()


@pytest.mark.parametrize("number", exhaustive_after([signal.SIGKILL, signal.SIGTERM]))
def test_the_gpus_of_a_dead_owner_are_restored(agent: AgentFixture, number: int) -> None:
    owner = holding_process(agent.socket, 200, agent.uuids)
    assert agent.limits == [200, 200, 200]
    owner.send_signal(number)
    until(lambda: agent.limits == FOUND, "restored after the owner")
    owner.communicate()
    with AgentConnection(agent.socket) as connection:
        until(lambda: connection.leases() == [], "no lease left")


def test_the_gpus_of_a_killed_agent_are_restored(agent_fixture: AgentFixture) -> None:
    process, power_controller = started(agent_fixture)
    with AgentConnection(agent_fixture.socket) as connection:
        connection.hold_limit(agent_fixture.uuids, 200)
        process.kill()
        process.wait()
        wait_for_end(power_controller)
    assert agent_fixture.limits == FOUND


def test_a_killed_power_controller_is_replaced_and_living_owners_keep_their_leases(agent_fixture: AgentFixture) -> None:
    process, power_controller = started(agent_fixture)
    dead = holding_process(agent_fixture.socket, 300, agent_fixture.uuids[:1])
    with AgentConnection(agent_fixture.socket) as connection:
        connection.hold_limit(agent_fixture.uuids[1:], 200)
        # Nothing may happen between the two deaths: the monitor is stopped meanwhile.
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(power_controller, signal.SIGKILL)
        dead.kill()
        dead.communicate()
        os.kill(process.pid, signal.SIGCONT)
        until(
            lambda: agent_fixture.limits == [400, 200, 200],
            "the dead owner's GPU restored by the next power controller",
        )
        assert connection.release() == agent_fixture.uuids[1:]
    assert agent_fixture.limits == FOUND
    assert children_of(process.pid) != [power_controller]
    assert stop_agent(process) == 0


def test_when_both_are_killed_the_next_agent_restores_every_gpu(agent_fixture: AgentFixture) -> None:
    process, power_controller = started(agent_fixture)
    owner = holding_process(agent_fixture.socket, 200, agent_fixture.uuids)
    kill_together(process, power_controller)
    owner.kill()
    owner.communicate()
    assert agent_fixture.limits == [200, 200, 200]
    following, _ = started(agent_fixture)
    until(lambda: agent_fixture.limits == FOUND, "restored by the next agent")
    assert stop_agent(following) == 0


def test_restore_only_restores_what_killed_agents_left(agent_fixture: AgentFixture) -> None:
    process, power_controller = started(agent_fixture)
    with AgentConnection(agent_fixture.socket) as connection:
        connection.hold_limit(agent_fixture.uuids, 200)
    kill_together(process, power_controller)
    wait_for_end(power_controller)
    command = [sys.executable, "-m", "wattloop_agent", "--restore-only", "--state-directory", str(agent_fixture.state)]
    done = subprocess.run(command, env=agent_fixture.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert agent_fixture.limits == FOUND


@pytest.mark.parametrize("number", exhaustive_after([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
def test_an_agent_that_receives_a_signal_restores_every_gpu_first(agent_fixture: AgentFixture, number: int) -> None:
    process, power_controller = started(agent_fixture)
    with AgentConnection(agent_fixture.socket) as connection:
        connection.hold_limit(agent_fixture.uuids, 200)
        process.send_signal(number)
        assert process.wait(DEADLINE_SECONDS) == 130
        assert agent_fixture.limits == FOUND
    wait_for_end(power_controller)
    assert not agent_fixture.socket.exists()


@pytest.mark.parametrize("number", exhaustive_after([signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL]))
def test_a_signal_to_all_processes_of_a_terminal_restores_every_gpu(agent_fixture: AgentFixture, number: int) -> None:
    process, power_controller = started(agent_fixture)
    with AgentConnection(agent_fixture.socket) as connection:
        connection.hold_limit(agent_fixture.uuids, 200)
        os.killpg(process.pid, number)
        process.wait(DEADLINE_SECONDS)
        wait_for_end(power_controller)
    assert agent_fixture.limits == FOUND
    assert "did not end cleanly" not in agent_fixture.log.read_text()


def test_an_agent_under_nohup_survives_its_terminal(agent_fixture: AgentFixture) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process, _ = started(agent_fixture)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    with AgentConnection(agent_fixture.socket) as connection:
        assert [held.held_watts for held in connection.hold_limit(agent_fixture.uuids, 200)] == [200, 200, 200]
    assert stop_agent(process) == 0


def test_an_agent_ends_with_the_process_it_watches(agent_fixture: AgentFixture) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from wattloop.gpus.agent import AgentConnection\n"
        "from wattloop.gpus.agent_process import start_agent\n"
        "agent = start_agent(Path(sys.argv[1]), Path(sys.argv[2]), log=Path(sys.argv[3]))\n"
        "AgentConnection(sys.argv[1]).hold_limit(sys.argv[4:], 200)\n"
        "print(agent.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            str(agent_fixture.socket),
            str(agent_fixture.state),
            str(agent_fixture.log),
            *agent_fixture.uuids,
        ],
        env=agent_fixture.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    agent = int(parent.stdout.readline())
    assert agent_fixture.limits == [200, 200, 200]
    parent.kill()
    wait_for_end(agent)
    assert agent_fixture.limits == FOUND
    parent.communicate()


@pytest.mark.parametrize("which", ["monitor", "power-controller"])
def test_a_hung_part_leaves_no_gpu_at_a_dead_owners_limit(agent_fixture: AgentFixture, which: str) -> None:
    agent_fixture.heartbeat_timeout_seconds = HEARTBEAT_TIMEOUT_SECONDS
    process, power_controller = started(agent_fixture)
    owner = holding_process(agent_fixture.socket, 200, agent_fixture.uuids)
    os.kill(process.pid if which == "monitor" else power_controller, signal.SIGSTOP)
    owner.kill()
    owner.communicate()
    until(lambda: agent_fixture.limits == FOUND, f"restored though the {which} hangs")
    os.kill(process.pid, signal.SIGCONT)
    assert stop_agent(process) == 0
