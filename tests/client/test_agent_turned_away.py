"""An agent that turns a caller away before it has asked anything."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattloop.agent import AgentConnection, AgentRequestError, AgentUnavailable


@pytest.fixture
def listening() -> Iterator[tuple[socket.socket, Path]]:
    # A socket's path has 107 bytes at most; pytest's own folders are longer.
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as server:
        path = Path(folder) / "agent.sock"
        server.bind(str(path))
        server.listen()
        yield server, path


def turned_away(listening: tuple[socket.socket, Path], word: bytes) -> AgentConnection:
    """A connection that the other end has closed after this word, before anything was asked."""
    server, path = listening
    connection = AgentConnection(path, reconnect_seconds=0)
    connection.wait(0)
    caller, _ = server.accept()
    with caller:
        caller.sendall(word)
    return connection


def test_its_reason_is_heard(listening: tuple[socket.socket, Path]) -> None:
    word = b'{"error": {"reason": "NotPermitted", "message": "you are in no pod"}}\n'
    with (
        turned_away(listening, word) as connection,
        pytest.raises(AgentRequestError, match="you are in no pod") as caught,
    ):
        connection.gpus()
    assert caught.value.reason == "NotPermitted"


def test_without_a_word_it_counts_as_gone(listening: tuple[socket.socket, Path]) -> None:
    with turned_away(listening, b"") as connection:
        listening[0].close()
        with pytest.raises(AgentUnavailable):
            connection.gpus()
