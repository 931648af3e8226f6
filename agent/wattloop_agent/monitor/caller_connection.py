"""One connection to the agent's socket, with bounds on what it receives and sends.

It reads the socket directly, because a stream of asyncio reads up to 256 KiB at once whatever its limit is.

A plan changes the clocks of a rank at every instruction. The rank must not wait for answers, and an old clock is of no
use once a newer one is requested. So of the requests for a clock that wait on a connection and are answered only if
they are refused, only the newest is executed, and each owner has a rate: a caller that sends faster than its clocks can
follow costs no more than one that does not.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wattloop_agent.json_lines import REQUEST_LIMIT_BYTES, boolean, decoded_request, encoded, request_too_long
from wattloop_agent.refusals import Reason, RequestError, error_answer

READ_BYTES = 16 * 1024
# Of requests whose end has not come yet, of all connections together; a request of one piece always has room.
MAX_PARTIAL_REQUESTS_BYTES = 8 * 1024 * 1024
# A caller that does not read its answer for so long is disconnected.
MAX_ANSWER_SECONDS = 10.0
UNANSWERED_VERB = "hold_clocks"
CHANGES_PER_SECOND = 2000.0
# The instructions of many ranks of a pod may end at the same moment.
MAX_BURST = 200
# Requests that are replaced before the event loop serves other connections.
MAX_REPLACED = 32
# A longer request waits for its turn, since decoding it takes long.
MAX_LINE_BYTES = 4096
MAX_OWNERS = 1024


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


def is_unanswered(request: Mapping[str, object]) -> bool:
    """Whether a request is answered only if it is refused; `Reason.BAD_REQUEST`: its ``unanswered`` is no boolean."""
    return request["verb"] == UNANSWERED_VERB and boolean(request, "unanswered")


def replaces(newer: Mapping[str, object], older: Mapping[str, object]) -> bool:
    """Whether an unanswered request makes an older one useless.

    Example:
        >>> older = {"verb": "hold_clocks", "unanswered": True, "gpus": ["GPU-1"], "megahertz": 900}
        >>> replaces({**older, "megahertz": 1200}, older), replaces({**older, "gpus": ["GPU-2"]}, older)
        (True, False)
    """
    # A field of another type than it should have is refused in its turn.
    return (
        newer["verb"] == UNANSWERED_VERB
        and newer.get("unanswered") is True
        and all(newer.get(name) == older.get(name) for name in ("gpus", "domain", "for_seconds"))
    )


def newest_request(connection: CallerConnection, request: dict[str, object]) -> dict[str, object]:
    """The last of the requests on a connection that each replace the one before, beginning with this one.

    Those before are taken from the connection. It does not wait for data.
    """
    for _ in range(MAX_REPLACED):
        line = connection.available_line()
        if line is None or len(line) > MAX_LINE_BYTES:
            break
        try:
            newer = decoded_request(line)
        except RequestError:
            break
        if not replaces(newer, request):
            break
        connection.skip_line()
        request = newer
    return request


class ChangeRates:
    """The rate at which each owner may change clocks by unanswered requests: a token bucket each.

    Example:
        >>> seconds = [0.0]
        >>> rates = ChangeRates(per_second=10.0, burst=2, clock=lambda: seconds[0])
        >>> [rates.delay_seconds("pod:a") for _ in range(4)]
        [0.0, 0.0, 0.1, 0.2]
        >>> seconds[0] = 60.0
        >>> rates.delay_seconds("pod:a"), rates.delay_seconds("pod:b")
        (0.0, 0.0)
    """

    def __init__(
        self,
        per_second: float = CHANGES_PER_SECOND,
        burst: int = MAX_BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst_seconds = burst / per_second
        self._clock = clock
        # When the bucket of each owner will be full again; without an entry it is full.
        self._full_seconds: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_seconds)

    def delay_seconds(self, owner: str) -> float:
        """Take a token; returns how long the caller has to wait for it."""
        now = self._clock()
        if len(self._full_seconds) >= MAX_OWNERS:
            self._full_seconds = {each: full for each, full in self._full_seconds.items() if full > now}
        full = max(self._full_seconds.get(owner, now), now) + 1 / self._per_second
        self._full_seconds[owner] = full
        return max(round(full - now - self._burst_seconds, 9), 0.0)
