"""The transport to the agent: one JSON object per line over a Unix socket, and the errors of a request."""

import contextlib
import errno
import json
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wattloop.errors import OperationError, WattloopError

REQUEST_LIMIT_BYTES = 64 * 1024
ANSWER_LIMIT_BYTES = 1024 * 1024


class AgentUnavailable(OperationError):  # noqa: N818 - it is a state of the node, not a mistake of the caller
    """No agent answers at the socket: it is not running, is restarting, or exceeds the timeout."""


class AgentDisconnected(AgentUnavailable):
    """The agent closed an open connection."""


class AgentRequestError(WattloopError):
    """The agent rejected the request and changed no GPU.

    Attributes:
        reason: One of the reasons in docs/internals/agent.md: ``NotYours``, ``OutOfRange``, ``UnknownGpu``,
            ``NotPermitted``, ``NotSupported``, ``BadRequest``, ``Unavailable``, ….
        message: What is wrong, and what is valid.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"the agent rejected the request: {message} ({reason})")
        self.reason = reason
        self.message = message


class AgentTransport:
    """A socket to the agent, for one request at a time; opened on first use.

    Attributes:
        received: What has arrived of the next message.
        interruptions: Number of open connections that failed.
        failed: Whether the last connection failed and has not been replaced.
    """

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._socket: socket.socket | None = None
        self.received = b""
        self.interruptions = 0
        self.failed = False

    def connect(self) -> socket.socket:
        """The open socket.

        Raises:
            OSError: No process listens on the socket.
        """
        if self._socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                # With Python's own timeout `connect` fails immediately while the listen queue is full.
                seconds, microseconds = divmod(round(self._timeout_seconds * 1e6), 1_000_000)
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", seconds, microseconds))
                opened.connect(str(self._path))
            except BlockingIOError as error:
                opened.close()
                raise TimeoutError(errno.ETIMEDOUT, "too many processes are connecting to it") from error
            except OSError:
                opened.close()
                raise
            opened.settimeout(self._timeout_seconds)
            self._socket = opened
        return self._socket

    def send(self, request: Mapping[str, object]) -> None:
        """Send a request.

        Raises:
            AgentUnavailable: No agent answers; `AgentDisconnected` if an open connection failed.
            AgentRequestError: The request is too long.
        """
        line = json.dumps(request, allow_nan=False).encode() + b"\n"
        if len(line) > REQUEST_LIMIT_BYTES:
            raise AgentRequestError("BadRequest", f"the request has {len(line)} bytes, {REQUEST_LIMIT_BYTES} at most")
        # BrokenPipeError: the agent closed the connection after an error that concerns the caller; `message` reads it.
        with self.failures(), contextlib.suppress(BrokenPipeError):
            self.connect().sendall(line)

    def answer(self) -> Any:
        """Receive the next result."""
        message = self.message()
        if "error" in message:
            raise error_of(message)
        return message["result"]

    def message(self) -> dict[str, Any]:
        """Receive the next message, which may be an error of the agent."""
        with self.failures():
            while b"\n" not in self.received:
                self.receive()
            line, _, self.received = self.received.partition(b"\n")
            message: dict[str, Any] = json.loads(line)
            return message

    def receive(self) -> None:
        """Receive a part of a message."""
        if self._socket is None:
            raise ConnectionResetError("another thread closed the connection")
        part = self._socket.recv(65536)
        self.received += part
        if not part:
            raise ConnectionResetError("it closed the connection")
        if len(self.received) > ANSWER_LIMIT_BYTES and b"\n" not in part:
            raise ValueError(f"an answer of more than {ANSWER_LIMIT_BYTES} bytes")

    def close(self) -> None:
        """Close the socket; the next request opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self.received = b""

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Raise what fails in a block as `AgentUnavailable`."""
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._disconnected(error) from error

    def _disconnected(self, error: Exception) -> AgentUnavailable:
        if self._socket is not None:
            self.failed = True
            self.interruptions += 1
        self.close()
        cause = getattr(error, "strerror", None) or str(error)
        kind = AgentDisconnected if isinstance(error, ConnectionError) else AgentUnavailable
        return kind(f"{self._path}: no agent answers ({cause}); is one running?")


def error_of(message: Mapping[str, Any]) -> AgentRequestError:
    """The error in a message."""
    return AgentRequestError(str(message["error"]["reason"]), str(message["error"]["message"]))
