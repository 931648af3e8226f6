"""The line to the agent: one JSON object a line over a unix socket, opened when first used."""

from __future__ import annotations

import errno
import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattloop.agent.errors import AgentDisconnected, AgentRequestError, AgentUnavailable

REQUEST_LIMIT_BYTES = 64 * 1024
ANSWER_LIMIT_BYTES = 1024 * 1024


class AgentTransport:
    """A socket to the agent, one request at a time.

    Args:
        path: The agent's socket.
        timeout_seconds: How long one answer may take.

    Attributes:
        interruptions: How often an open line broke.
        broke: Whether the last one did, and nobody has connected anew since.
    """

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._socket: socket.socket | None = None
        self._received = b""
        self.interruptions = 0
        self.broke = False

    def connect(self) -> socket.socket:
        """The open socket.

        Raises:
            OSError: Nobody listens there.
        """
        if self._socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                _wait_in_line(opened, self._timeout_seconds)
                opened.connect(str(self._path))
            except BlockingIOError as error:
                opened.close()
                raise TimeoutError(errno.ETIMEDOUT, "too many others are connecting to it") from error
            except OSError:
                opened.close()
                raise
            opened.settimeout(self._timeout_seconds)
            self._socket = opened
        return self._socket

    def exchange(self, request: Mapping[str, object]) -> Any:
        """The result of one request.

        Raises:
            AgentUnavailable: No agent answers; `AgentDisconnected` where an open line broke.
            AgentRequestError: The agent says no.
        """
        self.send(request)
        return self.answer()

    def send(self, request: Mapping[str, object]) -> None:
        """Ask.

        Raises:
            AgentUnavailable: As `exchange`.
            AgentRequestError: The request is too long.
        """
        line = json.dumps(request, allow_nan=False).encode() + b"\n"
        if len(line) > REQUEST_LIMIT_BYTES:
            raise AgentRequestError("BadRequest", f"the request has {len(line)} bytes, {REQUEST_LIMIT_BYTES} at most")
        try:
            self.connect().sendall(line)
        except BrokenPipeError:
            # It has closed already, but not without a word: a refusal of the caller itself is still to be read.
            return
        except OSError as error:
            raise self._failed(error) from error

    def answer(self) -> Any:
        """The result that comes next.

        Raises:
            AgentUnavailable: As `exchange`.
            AgentRequestError: As `exchange`.
        """
        try:
            answer = json.loads(self._line())
        except (OSError, ValueError) as error:
            raise self._failed(error) from error
        if "error" in answer:
            raise AgentRequestError(str(answer["error"]["reason"]), str(answer["error"]["message"]))
        return answer["result"]

    def close(self) -> None:
        """Close the socket; the next request opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._received = b""

    def _line(self) -> bytes:
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

    def _failed(self, error: Exception) -> AgentUnavailable:
        if self._socket is not None:
            self.broke = True
            self.interruptions += 1
        self.close()
        told = getattr(error, "strerror", None) or str(error)
        kind = AgentDisconnected if isinstance(error, ConnectionError) else AgentUnavailable
        return kind(f"{self._path}: no agent answers ({told}); is one running?")


def _wait_in_line(opened: socket.socket, seconds: float) -> None:
    """Have `connect` wait for so long where many connect at once: by Python's own timeout it does not wait at all."""
    whole, part = divmod(round(seconds * 1e6), 1_000_000)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole, part))
