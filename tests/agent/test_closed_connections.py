"""Connections that the agent closes: the caller reads why, and the client reconnects."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, AgentFixture, until
from wattloop.gpus.agent import AgentConnection
from wattloop.interruption import EXIT_INTERRUPTED
from wattloop_agent.monitor.connection_slots import RESERVED_DESCRIPTORS, connections_allowed
from wattloop_agent.monitor.socket_server import MAX_BAD_REQUESTS

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
        until(lambda: listens(agent_fixture), "the agent serves")
        yield
    finally:
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == EXIT_INTERRUPTED, agent_fixture.log.read_text()


def listens(agent_fixture: AgentFixture) -> bool:
    # The socket's path exists a moment before the agent listens.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(agent_fixture.socket)) == 0


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


def test_a_client_whose_idle_connection_was_closed_reconnects_and_keeps_its_leases(agent_fixture: AgentFixture) -> None:
    with agent_with_few_descriptors(agent_fixture), ExitStack() as stack:
        trainer = stack.enter_context(AgentConnection(agent_fixture.socket))
        subscriber = stack.enter_context(AgentConnection(agent_fixture.socket))
        trainer.hold_limit(agent_fixture.uuids, 200)
        assert subscriber.gpus()
        for _ in range(connections_allowed(FEW_DESCRIPTORS)):
            other = stack.enter_context(connected(agent_fixture))
            other.sendall(b'{"verb": "list"}\n')
            assert b"result" in other.recv(65536)
        assert [held.held_watts for held in trainer.hold_limit(agent_fixture.uuids, 250)] == [250, 250, 250]
        assert len(next(subscriber.subscribe(0.1))) == 3
        assert (trainer.interruptions, subscriber.interruptions) == (0, 0), "the limit was held throughout"
        assert {lease.held for lease in trainer.leases()} == {250}
    assert "fewer connections" in agent_fixture.log.read_text()


def test_a_connection_that_loses_its_slot_receives_the_reason(agent_fixture: AgentFixture) -> None:
    with agent_with_few_descriptors(agent_fixture), ExitStack() as stack:
        first = stack.enter_context(connected(agent_fixture))
        first.sendall(b'{"verb": "list"}\n')
        assert b"result" in first.recv(65536)
        for _ in range(connections_allowed(FEW_DESCRIPTORS)):
            other = stack.enter_context(connected(agent_fixture))
            other.sendall(b'{"verb": "list"}\n')
            assert b"result" in other.recv(65536)
        (last,) = answered(first, b"")
        assert last["error"]["reason"] == "ConnectionClosed"
        assert "idle, and no other slot is free" in last["error"]["message"]


def test_a_connection_is_closed_after_a_few_bad_requests_in_a_row(agent: AgentFixture) -> None:
    with connected(agent) as connection:
        answers = answered(connection, b"\n" * 100)
    assert [each["error"]["reason"] for each in answers] == ["BadRequest"] * MAX_BAD_REQUESTS + ["ConnectionClosed"]
    with connected(agent) as connection:
        connection.sendall((b"\n" * (MAX_BAD_REQUESTS - 1) + b'{"verb": "list"}\n') * 5)
        with connection.makefile("rb") as lines:
            answers = [json.loads(lines.readline()) for _ in range(5 * MAX_BAD_REQUESTS)]
    assert sum("result" in each for each in answers) == 5


def test_the_client_survives_its_bad_requests(agent: AgentFixture) -> None:
    with AgentConnection(agent.socket) as connection:
        for _ in range(3 * MAX_BAD_REQUESTS):
            with pytest.raises(Exception, match="contains a GPU twice"):
                connection.energy([agent.uuids[0]] * 2)
        assert len(connection.energy()) == 3
        assert connection.interruptions == 0


@pytest.mark.processes
def test_an_incomplete_request_closes_its_connection(agent: AgentFixture) -> None:
    with connected(agent) as connection:
        (last,) = answered(connection, b'{"verb": ')
    assert last["error"]["reason"] == "ConnectionClosed"
    assert "a request was incomplete" in last["error"]["message"]
