"""Power controller and monitor as two containers of a pod are: each started by itself, meeting at a socket."""

from __future__ import annotations

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

from support.agents.bench import DEADLINE_SECONDS, HEARTBEAT_TIMEOUT_SECONDS, Bench, until
from wattloop.agent import AgentConnection, AgentRefused
from wattloop.errors import WattloopError

pytestmark = pytest.mark.processes


@contextmanager
def part(bench: Bench, name: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        "-m",
        "wattloop_agent",
        "--part",
        name,
        "--power-controller-socket",
        str(bench.folder / "power-controller.sock"),
    ]
    places = ["--socket", str(bench.socket), "--state-directory", str(bench.state)]
    with bench.log.open("ab") as log:
        process = subprocess.Popen([*command, *places, *words], env=bench.environment, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) in {0, 1, 130, -signal.SIGKILL}, bench.log.read_text()


def connected(bench: Bench) -> AgentConnection:
    until(bench.socket.is_socket, "the monitor serves")
    connection = AgentConnection(bench.socket)
    until(lambda: holds(connection, bench), "the monitor has found the power controller")
    return connection


def holds(connection: AgentConnection, bench: Bench) -> bool:
    try:
        connection.hold_limit(bench.uuids, 200)
    except WattloopError:
        return False
    return True


def test_the_monitor_finds_the_power_controller_whichever_starts_first(bench: Bench) -> None:
    with part(bench, "monitor"), part(bench, "power-controller"):
        connected(bench).close()
        assert bench.limits == [200, 200, 200]
    assert bench.limits == [400, 400, 400]


def test_a_monitor_that_falls_silent_loses_everything_it_held(bench: Bench) -> None:
    with part(bench, "power-controller"), part(bench, "monitor") as monitor:
        connected(bench).close()
        monitor.send_signal(signal.SIGSTOP)
        until(lambda: bench.limits == [400, 400, 400], "given back without a heartbeat")
        monitor.send_signal(signal.SIGCONT)
        with AgentConnection(bench.socket) as connection:
            assert connection.leases() == []
            connection.hold_limit(bench.uuids, 150)
        assert bench.limits == [150, 150, 150]


def test_requests_of_callers_take_the_place_of_no_heartbeat(bench: Bench) -> None:
    with part(bench, "power-controller"), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as monitor:
        # The socket is bound, and so is there, a moment before the power controller listens.
        until(
            lambda: monitor.connect_ex(str(bench.folder / "power-controller.sock")) == 0, "the power controller listens"
        )
        with monitor.makefile("rb") as answers:

            def ask(verb: str, **words: object) -> dict[str, Any]:
                monitor.sendall(json.dumps({"verb": verb, **words}).encode() + b"\n")
                answer: dict[str, Any] = json.loads(answers.readline())
                return answer

            assert "result" in ask("hold_limit", gpus=bench.uuids, watts=200, owner="process:1:1")
            begin = time.monotonic()
            while time.monotonic() < begin + 2 * HEARTBEAT_TIMEOUT_SECONDS:
                assert len(ask("heartbeat")["result"]["leases"]) == 3, "held as long as heartbeats come"
            until(lambda: ask("list")["result"]["leases"] == [], "given back though requests go on")
    assert bench.limits == [400, 400, 400]


def test_a_monitor_that_comes_back_in_time_keeps_the_leases_of_the_living(bench: Bench) -> None:
    with part(bench, "power-controller"):
        with part(bench, "monitor") as monitor:
            connected(bench).close()
            monitor.kill()
            monitor.wait()
        with part(bench, "monitor"):
            until(lambda: answers(bench), "the next monitor serves")
            with AgentConnection(bench.socket) as connection:
                assert [lease.held for lease in connection.leases()] == [200, 200, 200]
            assert bench.limits == [200, 200, 200]


def answers(bench: Bench) -> bool:
    try:
        with AgentConnection(bench.socket) as connection:
            connection.leases()
    except WattloopError:
        return False
    return True


def test_an_upgrade_hands_the_leases_to_the_next_power_controller(bench: Bench) -> None:
    with part(bench, "monitor"):
        with part(bench, "power-controller") as power_controller:
            connected(bench).close()
            power_controller.send_signal(signal.SIGUSR2)
            assert power_controller.wait(DEADLINE_SECONDS) == 0
        assert bench.limits == [200, 200, 200], "held though no power controller runs"
        with part(bench, "power-controller"), AgentConnection(bench.socket) as connection:
            until(lambda: answers(bench), "the next power controller is found")
            assert [lease.held for lease in connection.leases()] == [200, 200, 200]
            assert {lease.found for lease in connection.leases()} == {400}
    assert bench.limits == [400, 400, 400]


def test_a_power_controller_whose_driver_hangs_ends_by_itself_and_the_next_one_restores(bench: Bench) -> None:
    with part(bench, "monitor"):
        with part(bench, "power-controller") as power_controller:
            connected(bench).close()
            bench.gpus.inject_fault("nvmlDeviceSetPowerManagementLimit", delay_seconds=60, first_call=2, count=1)
            with AgentConnection(bench.socket) as connection, pytest.raises(AgentRefused) as caught:
                connection.hold_limit(bench.uuids, 150)
            assert caught.value.reason == "Unavailable"
            assert power_controller.wait(DEADLINE_SECONDS) == 1
        assert "Timeout" in bench.log.read_text(), "the log says where it hung"
        bench.gpus.clear_faults()
        with part(bench, "power-controller"):
            until(lambda: answers(bench), "the next power controller is found")
            assert bench.limits == [200, 200, 200], "the hold that was cut off is undone, the one before it stands"
    assert bench.limits == [400, 400, 400]


def test_a_stranger_at_the_power_controllers_socket_is_not_served(bench: Bench) -> None:
    with part(bench, "power-controller", "--power-controller-uids", str(os.geteuid() + 1)), part(bench, "monitor"):
        until(bench.socket.is_socket, "the monitor serves")
        until(lambda: "connection refused" in bench.log.read_text(), "the power controller has refused the monitor")
        assert bench.limits == [400, 400, 400]
