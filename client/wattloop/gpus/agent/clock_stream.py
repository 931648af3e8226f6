"""A connection that moves clocks without waiting for answers."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wattloop.gpus.agent.socket_transport import ANSWER_LIMIT_BYTES, AgentRequestError, AgentTransport, AgentUnavailable

# Requests that the socket holds while the agent does not read. The agent executes the newest of them alone.
BUFFERED_REQUESTS = 8
# What the kernel adds to a message of a Unix socket, generously.
OVERHEAD_BYTES = 1024


class ClockStream:
    """Moves the graphics clock of some GPUs, by requests that the agent answers only if it refuses them.

    One thread may call `send` while another one waits for refusals. Nothing else is thread-safe.

    Args:
        path: The agent's socket.
        uuids: The GPUs.
        timeout_seconds: Timeout of an answer to `hold` and `release`.

    Attributes:
        send: Sends a request for another clock without waiting, after `hold`. It raises
            `BlockingIOError` if the agent does not read its requests, and `OSError` if it has disconnected; then
            nothing is sent. It is the function of the socket itself, since a rank calls it at each instruction.
    """

    def __init__(self, path: Path, uuids: Sequence[str], timeout_seconds: float) -> None:
        self._path = path
        self._uuids = list(uuids)
        self._timeout_seconds = timeout_seconds
        self._transport = AgentTransport(path, timeout_seconds)
        self._socket: socket.socket | None = None
        self._received = b""
        self._requests: dict[int, bytes] = {}
        self.send: Callable[[bytes], int] = _disconnected

    def fileno(self) -> int:
        """The descriptor of the connection, readable when a refusal or the end has arrived."""
        return -1 if self._socket is None else self._socket.fileno()

    def request(self, megahertz: int) -> bytes:
        """The line that requests a clock, which the agent answers only if it refuses it.

        It is the same object for the same clock.
        """
        found = self._requests.get(megahertz)
        if found is None:
            message = {"verb": "hold_clocks", "unanswered": True, "gpus": self._uuids, "megahertz": megahertz}
            found = self._requests[megahertz] = _line(message)
        return found

    def hold(self, request: bytes) -> None:
        """Lock the clock of a request, and wait for the answer.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRequestError: The agent refuses the clock.
        """
        message = json.loads(request)
        del message["unanswered"]
        self._exchange(message)

    def release(self) -> None:
        """Unlock the clock, and wait for the answer.

        Raises:
            AgentUnavailable: No agent answers.
            AgentRequestError: A GPU could not be restored now; the agent retries.
        """
        self._exchange({"verb": "release", "gpus": self._uuids, "setting": "graphics_clock"})

    def refusals(self) -> list[AgentRequestError]:
        """The refusals that have arrived; does not wait.

        Raises:
            AgentUnavailable: The agent disconnected, or sent something else.
        """
        with self._failures():
            try:
                self._receive()
            except BlockingIOError:
                return []
            *lines, self._received = self._received.split(b"\n")
            return [_error(json.loads(line)) for line in lines]

    def close(self) -> None:
        """Close the connection; `hold` opens it again."""
        self._transport.close()
        self._socket = None
        self.send = _disconnected
        self._received = b""

    def _exchange(self, request: dict[str, object]) -> None:
        with self._failures():
            if self._socket is None:
                self._socket = self._transport.connect()
                # A message is sent wholly or not at all if the buffer has room for two of them.
                size_bytes = BUFFERED_REQUESTS * (len(self.request(0)) + OVERHEAD_BYTES)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)
            self._socket.settimeout(self._timeout_seconds)
            self._socket.sendall(_line(request))
            message = self._message()
            while "unanswered" in message:
                # The refusal of an earlier request, which this one replaces.
                message = self._message()
            self._socket.setblocking(False)
            self.send = self._socket.send
        if "error" in message:
            raise _error(message)

    def _message(self) -> dict[str, Any]:
        while b"\n" not in self._received:
            self._receive()
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _receive(self) -> None:
        assert self._socket is not None
        part = self._socket.recv(65536)
        self._received += part
        if not part or len(self._received) > ANSWER_LIMIT_BYTES:
            raise ConnectionResetError("it closed the connection")

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.close()
            cause = getattr(error, "strerror", None) or str(error)
            raise AgentUnavailable(f"{self._path}: no agent answers ({cause}); is one running?") from error


def _line(message: Mapping[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _disconnected(_request: bytes) -> int:
    raise ConnectionResetError("the agent disconnected")


def _error(message: dict[str, Any]) -> AgentRequestError:
    return AgentRequestError(str(message["error"]["reason"]), str(message["error"]["message"]))
