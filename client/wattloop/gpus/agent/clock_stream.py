"""A connection that moves clocks without waiting for answers."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from wattloop.gpus.agent.socket_transport import AgentRequestError, AgentTransport, AgentUnavailable, error_of

# Requests that the socket holds while the agent does not read. The agent executes the newest of them alone.
BUFFERED_REQUESTS = 8
# What the kernel adds to a message of a Unix socket, generously.
OVERHEAD_BYTES = 1024


class ClockStream:
    """Moves the graphics clock of some GPUs, by requests that the agent answers only if it refuses them.

    One thread may call `send` while another one waits for refusals. Nothing else is thread-safe. Errors are those of
    `AgentConnection`.

    Args:
        timeout_seconds: Timeout of an answer to `hold` and `release`.

    Attributes:
        send: Sends a request for another clock without waiting, after `hold`. It raises
            `BlockingIOError` if the agent does not read its requests, and `OSError` if it has disconnected; then
            nothing is sent. It is the function of the socket itself, since a rank calls it at each instruction.
    """

    def __init__(self, path: Path, uuids: Sequence[str], timeout_seconds: float) -> None:
        self._uuids = list(uuids)
        self._timeout_seconds = timeout_seconds
        self._transport = AgentTransport(path, timeout_seconds)
        self._socket: socket.socket | None = None
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
            found = self._requests[megahertz] = json.dumps(message).encode() + b"\n"
        return found

    def hold(self, request: bytes) -> None:
        """Lock the clock of a request, and wait for the answer."""
        message = json.loads(request)
        del message["unanswered"]
        self._exchange(message)

    def release(self) -> None:
        """Unlock the clock, and wait for the answer."""
        self._exchange({"verb": "release", "gpus": self._uuids, "setting": "graphics_clock"})

    def refusals(self) -> list[AgentRequestError]:
        """The refusals that have arrived; does not wait.

        Raises:
            AgentUnavailable: The agent disconnected, or sent something else.
        """
        with self._failures():
            try:
                self._transport.receive()
            except BlockingIOError:
                return []
            *lines, self._transport.received = self._transport.received.split(b"\n")
            return [error_of(json.loads(line)) for line in lines]

    def close(self) -> None:
        """Close the connection; `hold` opens it again."""
        self._transport.close()
        self._socket = None
        self.send = _disconnected

    def _exchange(self, request: dict[str, object]) -> None:
        with self._failures():
            if self._socket is None:
                self._socket = self._transport.connect()
                # A message is sent wholly or not at all if the buffer has room for two of them.
                size_bytes = BUFFERED_REQUESTS * (len(self.request(0)) + OVERHEAD_BYTES)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)
            self._socket.settimeout(self._timeout_seconds)
            self._transport.send(request)
            # Before it, refusals of earlier requests may arrive, which this one replaces.
            message = self._transport.message()
            while "unanswered" in message:
                message = self._transport.message()
            self._socket.setblocking(False)
            self.send = self._socket.send
        if "error" in message:
            raise error_of(message)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            with self._transport.failures():
                yield
        except AgentUnavailable:
            self.close()
            raise


def _disconnected(_request: bytes) -> int:
    raise ConnectionResetError("the agent disconnected")
