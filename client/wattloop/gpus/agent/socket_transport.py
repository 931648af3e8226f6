"""The transport to the agent: one JSON object per line over a Unix socket, and the errors of a request."""

from __future__ import annotations

import errno
import json
import socket
import struct
from collections.abc import Mapping
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

    Args:
        path: The agent's socket.
        timeout_seconds: Timeout of one answer.

    Attributes:
        interruptions: Number of open connections that failed.
        failed: Whether the last connection failed and has not been replaced.
    """

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._socket: socket.socket | None = None
        self._received = b""
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
                _set_connect_timeout(opened, self._timeout_seconds)
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

    def exchange(self, request: Mapping[str, object]) -> Any:
        """The result of one request.

        Raises:
            AgentUnavailable: No agent answers; `AgentDisconnected` if an open connection failed.
            AgentRequestError: The agent rejects the request.
        """
        self.send(request)
        return self.answer()

    def send(self, request: Mapping[str, object]) -> None:
        """Send a request.

        Raises:
            AgentUnavailable: As in `exchange`.
            AgentRequestError: The request is too long.
        """
        line = json.dumps(request, allow_nan=False).encode() + b"\n"
        if len(line) > REQUEST_LIMIT_BYTES:
            raise AgentRequestError("BadRequest", f"the request has {len(line)} bytes, {REQUEST_LIMIT_BYTES} at most")
        try:
            self.connect().sendall(line)
        except BrokenPipeError:
            # The agent closed the connection after an error that concerns the caller; `answer` reads it.
            return
        except OSError as error:
            raise self._disconnected(error) from error

    def answer(self) -> Any:
        """Receive the next result.

        Raises:
            AgentUnavailable: As in `exchange`.
            AgentRequestError: As in `exchange`.
        """
        try:
            answer = json.loads(self._read_line())
        except (OSError, ValueError) as error:
            raise self._disconnected(error) from error
        if "error" in answer:
            raise AgentRequestError(str(answer["error"]["reason"]), str(answer["error"]["message"]))
        return answer["result"]

    def close(self) -> None:
        """Close the socket; the next request opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._received = b""

    def _read_line(self) -> bytes:
        connected = self.connect()
        while b"\n" not in self._received:
            if len(self._received) > ANSWER_LIMIT_BYTES:
                raise ValueError(f"an answer of more than {ANSWER_LIMIT_BYTES} bytes")
            part = connected.recv(65536)
            if not part:
                raise ConnectionResetError("it closed the connection")
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _disconnected(self, error: Exception) -> AgentUnavailable:
        if self._socket is not None:
            self.failed = True
            self.interruptions += 1
        self.close()
        cause = getattr(error, "strerror", None) or str(error)
        kind = AgentDisconnected if isinstance(error, ConnectionError) else AgentUnavailable
        return kind(f"{self._path}: no agent answers ({cause}); is one running?")


def _set_connect_timeout(opened: socket.socket, seconds: float) -> None:
    """Let `connect` wait while the listen queue is full. With Python's own timeout it fails immediately."""
    full_seconds, microseconds = divmod(round(seconds * 1e6), 1_000_000)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", full_seconds, microseconds))
