"""Processes that open connections, so that the kernel identifies them, and pass the sockets to the test."""

import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass
class CallerProcess:
    """A process that calls the agent.

    Attributes:
        control: It opens one more connection for each byte, and ends when this is closed.
    """

    pid: int
    control: socket.socket

    def connection(self) -> socket.socket:
        """One more connection of this process to the agent."""
        self.control.send(b"c")
        _, (descriptor,), _, _ = socket.recv_fds(self.control, 1, 1)
        return socket.socket(fileno=descriptor)

    def start_ticks(self) -> int:
        """When it started, as /proc has it."""
        return int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[19])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.control.close()


class CallerSpawner:
    """A process that forks callers; make it before anything starts a thread.

    Args:
        path: The agent's socket, which need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.pid = os.fork()
        if self.pid == 0:
            self._line.close()
            _serve_spawn_requests(theirs, str(path))
        theirs.close()

    def spawn(self) -> CallerProcess:
        """A new process."""
        self._line.send(b"b")
        pid, (descriptor,), _, _ = socket.recv_fds(self._line, 16, 1)
        return CallerProcess(int(pid), socket.socket(fileno=descriptor))

    def close(self) -> None:
        """End it; callers end when their control is closed."""
        self._line.close()
        os.waitpid(self.pid, 0)


def _serve_spawn_requests(line: socket.socket, path: str) -> None:
    # The kernel reaps the children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while line.recv(1):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        child = os.fork()
        if child == 0:
            line.close()
            theirs.close()
            _serve_connections(ours, path)
        ours.close()
        socket.send_fds(line, [str(child).encode()], [theirs.fileno()])
        theirs.close()
    os._exit(0)


def _serve_connections(control: socket.socket, path: str) -> None:
    while control.recv(1):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(path)
            _send(control, [connection.fileno()])
    os._exit(0)


def _send(control: socket.socket, descriptors: Sequence[int]) -> None:
    socket.send_fds(control, [b"f"], descriptors)
