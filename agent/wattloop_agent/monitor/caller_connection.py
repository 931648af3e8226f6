"""One connection to the agent's socket, with bounds on what it receives and sends.

It reads the socket directly, because a stream of asyncio reads up to 256 KiB at once whatever its limit is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from wattloop_agent.json_lines import REQUEST_LIMIT_BYTES, encoded, request_too_long
from wattloop_agent.refusals import Reason, RequestError, error_answer

READ_BYTES = 16 * 1024
# Of requests whose end has not come yet, of all connections together; a request of one piece always has room.
MAX_PARTIAL_REQUESTS_BYTES = 8 * 1024 * 1024
# A caller that does not read its answer for so long is disconnected.
MAX_ANSWER_SECONDS = 10.0


@dataclass
class PartialRequests:
    """The size of all incomplete requests of all connections."""

    size_bytes: int = 0


class CallerConnection:
    """An accepted connection; its socket is closed with it.

    Attributes:
        partial_since_seconds: Since when a request has been incomplete, on the monotonic clock; None: none is.
    """

    def __init__(self, accepted: socket.socket, partial_requests: PartialRequests) -> None:
        accepted.setblocking(False)
        self.socket = accepted
        self.partial_since_seconds: float | None = None
        self._partial_requests = partial_requests
        self._received = bytearray()
        self._counted_bytes = 0

    async def line(self) -> bytes | None:
        """The next request's line; None: the caller has closed the connection.

        Raises:
            RequestError: The request is too long, or too many are incomplete.
            OSError: The caller is gone.
        """
        end = self._received.find(b"\n")
        while end < 0:
            if len(self._received) > REQUEST_LIMIT_BYTES:
                raise request_too_long()
            self._count_partial_request()
            part = await asyncio.get_running_loop().sock_recv(self.socket, READ_BYTES)
            if not part:
                return None
            searched = len(self._received)
            self._received += part
            end = self._received.find(b"\n", searched)
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        self._count(0)
        self.partial_since_seconds = None
        return line

    def available_line(self) -> bytes | None:
        """The next request's line, if it has arrived, without taking it; it does not wait."""
        end = self._received.find(b"\n")
        if end < 0 and len(self._received) <= REQUEST_LIMIT_BYTES:
            # `line` sees an error or the end again.
            with contextlib.suppress(OSError):
                self._received += self.socket.recv(READ_BYTES)
            end = self._received.find(b"\n")
        return bytes(self._received[: end + 1]) if end >= 0 else None

    def skip_line(self) -> None:
        """Take the line of `available_line`."""
        del self._received[: self._received.find(b"\n") + 1]

    async def ended(self) -> None:
        """Wait until the caller closes a subscription, or sends anything, which a subscriber may not."""
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_recv(self.socket, READ_BYTES)

    async def send(self, message: Mapping[str, object]) -> None:
        """Send a message; `OSError`: the caller is gone, or does not read (`TimeoutError`)."""
        data = encoded(message)
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                await asyncio.get_running_loop().sock_sendall(self.socket, data[sent:])

    def send_last(self, refusal: RequestError) -> None:
        """Send the reason for closing, if the socket's buffer has room."""
        with contextlib.suppress(OSError):
            self.socket.send(encoded(error_answer(refusal)))

    def close(self) -> None:
        """Close the connection."""
        self._count(0)
        self.socket.close()

    def _count_partial_request(self) -> None:
        if not self._received:
            return
        if self.partial_since_seconds is None:
            self.partial_since_seconds = time.monotonic()
        self._count(len(self._received))
        if len(self._received) > READ_BYTES and self._partial_requests.size_bytes > MAX_PARTIAL_REQUESTS_BYTES:
            raise RequestError(Reason.TOO_MANY, "too many long requests are incomplete; send each without a pause")

    def _count(self, size_bytes: int) -> None:
        self._partial_requests.size_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes
