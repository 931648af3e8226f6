"""Power controller and monitor started separately, as in two containers of a pod."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, HEARTBEAT_TIMEOUT_SECONDS, AgentFixture, until
from wattloop.errors import WattloopError
from wattloop.gpus.agent import AgentConnection, AgentRequestError

pytestmark = pytest.mark.processes


@contextmanager
def part(agent_fixture: AgentFixture, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "wattloop_agent",
        "--part",
        name,
        "--power-controller-socket",
        str(agent_fixture.folder / "power-controller.sock"),
    ]
    paths = ["--socket", str(agent_fixture.socket), "--state-directory", str(agent_fixture.state)]
    with agent_fixture.log.open("ab") as log:
        process = subprocess.Popen([*command, *paths, *arguments], env=agent_fixture.environment, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) in {0, 1, 130, -signal.SIGKILL}, agent_fixture.log.read_text()


def connected(agent_fixture: AgentFixture) -> AgentConnection:
    until(agent_fixture.socket.is_socket, "the monitor serves")
    connection = AgentConnection(agent_fixture.socket)
    until(lambda: holds(connection, agent_fixture), "the monitor has found the power controller")
    return connection


def holds(connection: AgentConnection, agent_fixture: AgentFixture) -> bool:
    try:
        connection.hold_limit(agent_fixture.uuids, 200)
    except WattloopError:
        return False
    return True


def probed(agent_fixture: AgentFixture) -> tuple[int, str]:
    """The exit code of the liveness probe of the power controller's container, and what it says."""
    path = str(agent_fixture.folder / "power-controller.sock")
    command = [sys.executable, "-m", "wattloop_agent.power_controller.probe", path]
    done = subprocess.run(command, env=agent_fixture.environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_the_probe_of_the_power_controller_fails_exactly_while_it_does_not_answer(agent_fixture: AgentFixture) -> None:
    assert probed(agent_fixture)[0] == 1
    with part(agent_fixture, "power-controller") as power_controller:
        until(lambda: probed(agent_fixture) == (0, ""), "it answers")
        power_controller.send_signal(signal.SIGSTOP)
        code, problem = probed(agent_fixture)
        assert (code, problem.endswith(": the power controller does not answer: timed out\n")) == (1, True)
        power_controller.send_signal(signal.SIGCONT)
        until(lambda: probed(agent_fixture) == (0, ""), "it answers again")


def test_the_parts_connect_in_any_order_of_start(agent_fixture: AgentFixture) -> None:
    with part(agent_fixture, "monitor"), part(agent_fixture, "power-controller"):
        connected(agent_fixture).close()
        assert agent_fixture.limits == [200, 200, 200]
    assert agent_fixture.limits == [400, 400, 400]


def test_a_monitor_without_heartbeats_loses_all_leases(agent_fixture: AgentFixture) -> None:
    agent_fixture.heartbeat_timeout_seconds = HEARTBEAT_TIMEOUT_SECONDS
    with part(agent_fixture, "power-controller"), part(agent_fixture, "monitor") as monitor:
        connected(agent_fixture).close()
        monitor.send_signal(signal.SIGSTOP)
        until(lambda: agent_fixture.limits == [400, 400, 400], "restored without a heartbeat")
        monitor.send_signal(signal.SIGCONT)
        with AgentConnection(agent_fixture.socket) as connection:
            assert connection.leases() == []
            connection.hold_limit(agent_fixture.uuids, 150)
        assert agent_fixture.limits == [150, 150, 150]


def test_requests_of_callers_do_not_count_as_heartbeats(agent_fixture: AgentFixture) -> None:
    agent_fixture.heartbeat_timeout_seconds = HEARTBEAT_TIMEOUT_SECONDS
    with part(agent_fixture, "power-controller"), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as monitor:
        # The socket is bound, and so is there, a moment before the power controller listens.
        until(
            lambda: monitor.connect_ex(str(agent_fixture.folder / "power-controller.sock")) == 0,
            "the power controller listens",
        )
        with monitor.makefile("rb") as answers:

            def ask(verb: str, **arguments: object) -> dict[str, Any]:
                monitor.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
                answer: dict[str, Any] = json.loads(answers.readline())
                return answer

            assert "result" in ask("hold_limit", gpus=agent_fixture.uuids, watts=200, owner="process:1:1")
            begin = time.monotonic()
            while time.monotonic() < begin + 2 * HEARTBEAT_TIMEOUT_SECONDS:
                assert len(ask("heartbeat")["result"]["leases"]) == 3, "held as long as heartbeats come"
            until(lambda: ask("list")["result"]["leases"] == [], "restored although requests continue")
    assert agent_fixture.limits == [400, 400, 400]


def test_a_monitor_that_restarts_in_time_keeps_the_leases_of_living_owners(agent_fixture: AgentFixture) -> None:
    with part(agent_fixture, "power-controller"):
        with part(agent_fixture, "monitor") as monitor:
            connected(agent_fixture).close()
            monitor.kill()
            monitor.wait()
        with part(agent_fixture, "monitor"):
            until(lambda: answers(agent_fixture), "the next monitor serves")
            with AgentConnection(agent_fixture.socket) as connection:
                assert [lease.held for lease in connection.leases()] == [200, 200, 200]
            assert agent_fixture.limits == [200, 200, 200]


def answers(agent_fixture: AgentFixture) -> bool:
    try:
        with AgentConnection(agent_fixture.socket) as connection:
            connection.leases()
    except WattloopError:
        return False
    return True


def test_an_upgrade_hands_the_leases_to_the_next_power_controller(agent_fixture: AgentFixture) -> None:
    with part(agent_fixture, "monitor"):
        with part(agent_fixture, "power-controller") as power_controller:
            connected(agent_fixture).close()
            power_controller.send_signal(signal.SIGUSR2)
            assert power_controller.wait(DEADLINE_SECONDS) == 0
        assert agent_fixture.limits == [200, 200, 200], "held though no power controller runs"
        with part(agent_fixture, "power-controller"), AgentConnection(agent_fixture.socket) as connection:
            until(lambda: answers(agent_fixture), "the next power controller is found")
            assert [lease.held for lease in connection.leases()] == [200, 200, 200]
            assert {lease.found for lease in connection.leases()} == {400}
    assert agent_fixture.limits == [400, 400, 400]


def test_a_power_controller_with_a_hung_driver_ends_itself_and_the_next_one_restores(
    agent_fixture: AgentFixture,
) -> None:
    agent_fixture.heartbeat_timeout_seconds = HEARTBEAT_TIMEOUT_SECONDS
    with part(agent_fixture, "monitor"):
        with part(agent_fixture, "power-controller") as power_controller:
            connected(agent_fixture).close()
            agent_fixture.gpus.inject_fault(
                "nvmlDeviceSetPowerManagementLimit", delay_seconds=60, first_call=2, count=1
            )
            with AgentConnection(agent_fixture.socket) as connection, pytest.raises(AgentRequestError) as caught:
                connection.hold_limit(agent_fixture.uuids, 150)
            assert caught.value.reason == "Unavailable"
            assert power_controller.wait(DEADLINE_SECONDS) == 1
        assert "Timeout" in agent_fixture.log.read_text(), "the log says where it hung"
        agent_fixture.gpus.clear_faults()
        with part(agent_fixture, "power-controller"):
            until(lambda: answers(agent_fixture), "the next power controller is found")
            assert agent_fixture.limits == [200, 200, 200], (
                "the hold that was cut off is undone, the one before it stands"
            )
    assert agent_fixture.limits == [400, 400, 400]


def test_another_user_at_the_power_controllers_socket_is_not_served(agent_fixture: AgentFixture) -> None:
    with (
        part(agent_fixture, "power-controller", "--power-controller-uids", str(os.geteuid() + 1)),
        part(agent_fixture, "monitor"),
    ):
        until(agent_fixture.socket.is_socket, "the monitor serves")
        until(
            lambda: "connection refused" in agent_fixture.log.read_text(),
            "the power controller has refused the monitor",
        )
        assert agent_fixture.limits == [400, 400, 400]
