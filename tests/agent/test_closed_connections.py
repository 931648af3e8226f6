"""Connections that the agent closes by itself: the caller reads why, and the client goes on without an interruption."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, AgentFixture, until
from wattloop.agent import AgentConnection
from wattloop.interruption import EXIT_INTERRUPTED
from wattloop_agent.monitor.descriptors import RESERVED_DESCRIPTORS, connections_allowed
from wattloop_agent.monitor.server import MAX_BAD_REQUESTS

FEW_DESCRIPTORS = RESERVED_DESCRIPTORS + 32


@contextmanager
def agent_with_few_descriptors(agent_fixture: AgentFixture) -> Iterator[None]:
    """An agent whose hard limit of descriptors allows 16 connections."""
    agent = [sys.executable, "-m", "wattloop_agent", "--socket", str(agent_fixture.socket)]
    command = [*agent, "--state-directory", str(agent_fixture.state)]
    script = f'ulimit -n {FEW_DESCRIPTORS} && exec "$@"'
    with agent_fixture.log.open("ab") as log:
        process = subprocess.Popen(["sh", "-c", script, "sh", *command], env=agent_fixture.environment, stderr=log)
    try:
        until(agent_fixture.socket.is_socket, "the agent serves")
        yield
    finally:
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == EXIT_INTERRUPTED, agent_fixture.log.read_text()


def connected(agent_fixture: AgentFixture) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(DEADLINE_SECONDS)
    connection.connect(str(agent_fixture.socket))
    return connection


def answered(connection: socket.socket, request: bytes) -> list[dict[str, dict[str, str]]]:
    """All answers until the agent closes the connection."""
    if request:
        connection.sendall(request)
    with connection.makefile("rb") as lines:
        return [json.loads(line) for line in lines]


def test_a_client_whose_idle_connection_was_closed_goes_on_and_keeps_what_it_holds(agent_fixture: AgentFixture) -> None:
    with agent_with_few_descriptors(agent_fixture), ExitStack() as stack:
        lease_manager = stack.enter_context(AgentConnection(agent_fixture.socket))
        subscriber = stack.enter_context(AgentConnection(agent_fixture.socket))
        lease_manager.hold_limit(agent_fixture.uuids, 200)
        assert subscriber.gpus()
        for _ in range(connections_allowed(FEW_DESCRIPTORS)):
            other = stack.enter_context(connected(agent_fixture))
            other.sendall(b'{"verb": "list"}\n')
            assert b"result" in other.recv(65536)
        assert [held.held_watts for held in lease_manager.hold_limit(agent_fixture.uuids, 250)] == [250, 250, 250]
        assert len(next(subscriber.subscribe(0.1))) == 3
        assert (lease_manager.interruptions, subscriber.interruptions) == (0, 0), "what was held was held throughout"
        assert {lease.held for lease in lease_manager.leases()} == {250}
    assert "fewer connections" in agent_fixture.log.read_text()


def test_a_connection_whose_place_was_needed_is_told_so(agent_fixture: AgentFixture) -> None:
    with agent_with_few_descriptors(agent_fixture), ExitStack() as stack:
        first = stack.enter_context(connected(agent_fixture))
        first.sendall(b'{"verb": "list"}\n')
        assert b"result" in first.recv(65536)
        for _ in range(connections_allowed(FEW_DESCRIPTORS)):
            other = stack.enter_context(connected(agent_fixture))
            other.sendall(b'{"verb": "list"}\n')
            assert b"result" in other.recv(65536)
        (told,) = answered(first, b"")
        assert told["error"]["reason"] == "ConnectionClosed"
        assert "idle, and no other slot is free" in told["error"]["message"]


def test_a_connection_is_closed_after_a_few_bad_requests_in_a_row(agent: AgentFixture) -> None:
    with connected(agent) as connection:
        told = answered(connection, b"\n" * 100)
    assert [each["error"]["reason"] for each in told] == ["BadRequest"] * MAX_BAD_REQUESTS + ["ConnectionClosed"]
    with connected(agent) as connection:
        connection.sendall((b"\n" * (MAX_BAD_REQUESTS - 1) + b'{"verb": "list"}\n') * 5)
        with connection.makefile("rb") as lines:
            answers = [json.loads(lines.readline()) for _ in range(5 * MAX_BAD_REQUESTS)]
    assert sum("result" in each for each in answers) == 5


def test_the_client_outlives_its_bad_requests(agent: AgentFixture) -> None:
    with AgentConnection(agent.socket) as connection:
        for _ in range(3 * MAX_BAD_REQUESTS):
            with pytest.raises(Exception, match="contains a GPU twice"):
                connection.energy([agent.uuids[0]] * 2)
        assert len(connection.energy()) == 3
        assert connection.interruptions == 0


@pytest.mark.processes
def test_a_request_whose_end_does_not_come_costs_its_connection(agent: AgentFixture) -> None:
    with connected(agent) as connection:
        (told,) = answered(connection, b'{"verb": ')
    assert told["error"]["reason"] == "ConnectionClosed"
    assert "a request was incomplete" in told["error"]["message"]
