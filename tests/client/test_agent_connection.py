"""An agent that closes the connection before the first request."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable


@pytest.fixture
def listening() -> Iterator[tuple[socket.socket, Path]]:
    # The path of a socket has at most 107 bytes; pytest's folders are longer.
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as server:
        path = Path(folder) / "agent.sock"
        server.bind(str(path))
        server.listen()
        yield server, path


def closed_connection(listening: tuple[socket.socket, Path], line: bytes) -> AgentConnection:
    """A connection that the agent closed after this line, before the first request."""
    server, path = listening
    connection = AgentConnection(path, reconnect_seconds=0)
    connection.wait(0)
    caller, _ = server.accept()
    with caller:
        caller.sendall(line)
    return connection


def test_the_error_that_the_agent_sent_before_it_closed_is_raised(listening: tuple[socket.socket, Path]) -> None:
    line = b'{"error": {"reason": "NotPermitted", "message": "you are in no pod"}}\n'
    with (
        closed_connection(listening, line) as connection,
        pytest.raises(AgentRequestError, match="you are in no pod") as caught,
    ):
        connection.gpus()
    assert caught.value.reason == "NotPermitted"


def test_a_connection_closed_without_an_error_is_unavailable(listening: tuple[socket.socket, Path]) -> None:
    with closed_connection(listening, b"") as connection:
        listening[0].close()
        with pytest.raises(AgentUnavailable):
            connection.gpus()
