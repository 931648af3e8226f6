"""One connection to the agent's socket: lines in, lines out, with bounds on both.

It reads the socket itself: a stream of asyncio's takes up to 256 KiB at once, whatever its limit
is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from wattloop_agent.json_lines import REQUEST_LIMIT_BYTES, encoded
from wattloop_agent.request_error import Reason, RequestError, error_answer

READ_BYTES = 16 * 1024
# Of requests whose end has not come yet, of all connections together; a request of one piece always
# has room.
MAX_PARTIAL_REQUESTS_BYTES = 8 * 1024 * 1024
# A caller that takes no answer for this long is dropped.
MAX_ANSWER_SECONDS = 10.0


@dataclass
class PartialRequests:
    """What all connections have received of requests whose end has not come yet."""

    size_bytes: int = 0


class Connection:
    """An accepted connection.

    Args:
        accepted: The socket; closed with this.
        partial_requests: Of all connections.

    Attributes:
        socket: The socket.
        partial_since_seconds: Since when the end of a request has been missing, on the monotonic
            clock; None: none is missing.
    """

    def __init__(self, accepted: socket.socket, partial_requests: PartialRequests) -> None:
        accepted.setblocking(False)
        self.socket = accepted
        self.partial_since_seconds: float | None = None
        self._partial_requests = partial_requests
        self._received = bytearray()
        self._counted_bytes = 0

    async def line(self) -> bytes | None:
        """The next request's line; None: the caller has closed.

        Raises:
            RequestError: The request is too long, or too many are incomplete.
            OSError: The caller is gone.
        """
        end = self._received.find(b"\n")
        while end < 0:
            if len(self._received) > REQUEST_LIMIT_BYTES:
                raise RequestError(Reason.BAD_REQUEST, f"a request has {REQUEST_LIMIT_BYTES} bytes at most")
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

    async def ended(self) -> None:
        """Wait until the caller of a subscription closes, or sends anything more: a subscription takes no request."""
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_recv(self.socket, READ_BYTES)

    async def send(self, message: Mapping[str, object]) -> None:
        """Send a message.

        Raises:
            OSError: The caller is gone, or takes nothing (`TimeoutError`).
        """
        data = encoded(message)
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                await asyncio.get_running_loop().sock_sendall(self.socket, data[sent:])

    def send_last(self, refusal: RequestError) -> None:
        """Send why it is closed, if the caller takes it at once."""
        with contextlib.suppress(OSError):
            self.socket.send(encoded(error_answer(refusal)))

    def close(self) -> None:
        """Close it."""
        self._count(0)
        self.socket.close()

    def _count_partial_request(self) -> None:
        if not self._received:
            return
        if self.partial_since_seconds is None:
            self.partial_since_seconds = time.monotonic()
        self._count(len(self._received))
        if len(self._received) > READ_BYTES and self._partial_requests.size_bytes > MAX_PARTIAL_REQUESTS_BYTES:
            raise RequestError(Reason.TOO_MANY, "too many long requests are incomplete; send each at once")

    def _count(self, size_bytes: int) -> None:
        self._partial_requests.size_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes
