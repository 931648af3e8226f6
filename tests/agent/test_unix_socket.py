"""Consecutive processes listen at the path of a socket, and none removes another's."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattloop_agent.unix_socket import listening_socket, removed_on_exit


@pytest.fixture
def path() -> Iterator[Path]:
    # A socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as folder:
        yield Path(folder) / "agent.sock"


def test_the_socket_of_an_ending_process_is_removed(path: Path) -> None:
    with listening_socket(path), removed_on_exit(path):
        assert path.is_socket()
    assert not path.exists()


def test_the_socket_of_the_next_process_is_left_when_the_previous_one_ends(path: Path) -> None:
    first = listening_socket(path)
    with removed_on_exit(path):
        # It no longer listens, but has not ended yet.
        first.close()
        second = listening_socket(path)
    with second, socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))


def test_a_removed_socket_is_no_error(path: Path) -> None:
    with listening_socket(path), removed_on_exit(path):
        path.unlink()
    assert not path.exists()
