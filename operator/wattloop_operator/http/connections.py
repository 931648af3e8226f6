"""Bounds on HTTP connections and requests, and counts of the requests that they reject.

uvicorn bounds only the time between requests, and reports what it rejects in log lines alone. Three
parts add the rest by uvicorn's own extension points: a protocol class (option `http`), its method
`send_400_response`, and an ASGI layer.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import h11
from starlette.responses import JSONResponse, PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from wattloop_operator.http.open_connections import OpenConnections, peer_of

logger = logging.getLogger(__name__)
# At WARNING uvicorn logs each rejected request, which is counted here, and each request for an
# upgrade, which is answered without it.
CONNECTION_LOGGER = logging.getLogger("uvicorn.error.connection")
CONNECTION_LOGGER.setLevel(logging.ERROR)

# A request has at most 1 MiB: a client that takes longer to send one is gone or hostile.
REQUEST_SECONDS = 10.0
# Far longer than Wattloop's own clients wait for a response: a client that has not read it by then
# is gone, too.
RESPONSE_SECONDS = 60.0
RECEIVING = frozenset({h11.IDLE, h11.SEND_BODY})
RECEIVED = frozenset({h11.DONE, h11.MUST_CLOSE})
# A body in chunks of one byte takes a second of processor time for 64 KiB, before any caller is authorized. No client
# of Wattloop sends chunks, and data is parsed in pieces, of which the first one tells.
PIECE_BYTES = 4096
# Reasons of rejection: label values of a metric.
MALFORMED, OVERLOADED = "malformed", "overloaded"
MESSAGES = {MALFORMED: "invalid HTTP request", OVERLOADED: "too many connections or requests"}
LOG_INTERVAL_SECONDS = 60.0

Application = Callable[[Any, Any, Any], Awaitable[None]]


class RejectedRequests:
    """Counts the requests that one server rejects; logs one line per reason and minute at most.

    Args:
        server: The server's name, for the log.
        on_rejected: Called with the reason of each rejection.
        clock: Monotonic seconds.
    """

    def __init__(
        self, server: str, on_rejected: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._on_rejected = on_rejected
        self._clock = clock
        self._unlogged: Counter[str] = Counter()
        self._silent_until: dict[str, float] = {}

    def count(self, reason: str) -> None:
        """Count one rejected request."""
        self._on_rejected(reason)
        self._unlogged[reason] += 1
        now = self._clock()
        if now < self._silent_until.get(reason, -math.inf):
            return
        self._silent_until[reason] = now + LOG_INTERVAL_SECONDS
        logger.warning(
            "%s: rejected: %s (%d since the last such line)", self._server, MESSAGES[reason], self._unlogged.pop(reason)
        )


def is_chunked(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request's body comes in chunks instead of with its length."""
    return any(name == b"transfer-encoding" for name, _ in headers)


def limit_concurrency(app: Application, limit: int, rejected: RejectedRequests) -> Application:
    """An ASGI application that answers 503 to an address with more than its share while too many requests run.

    A body without its length gets 411.

    From `limit` running requests on, each address that has some may have an equal share of the limit. So at most twice
    as many run.

    Args:
        app: The application.
        limit: The limit of running requests.
        rejected: Counts the rejected requests.
    """
    running: Counter[str] = Counter()

    async def limited(scope: Any, receive: Any, send: Any) -> None:
        if is_chunked(scope.get("headers", ())):
            error = {"detail": "send the body with its Content-Length, and not in chunks"}
            await JSONResponse(error, 411, {"connection": "close"})(scope, receive, send)
            return
        address = (scope.get("client") or ("",))[0]
        others = len(running) - (address in running)
        if running.total() >= limit and running[address] >= limit // (others + 1):
            rejected.count(OVERLOADED)
            await PlainTextResponse("Service Unavailable", 503, {"connection": "close"})(scope, receive, send)
            return
        running[address] += 1
        try:
            await app(scope, receive, send)
        finally:
            running[address] -= 1
            if not running[address]:
                del running[address]

    return limited


class BoundedConnection(H11Protocol):
    """An HTTP connection with time limits.

    A request must arrive completely within `REQUEST_SECONDS` of its first byte, or of the
    connection; the client must read its response within `RESPONSE_SECONDS`. Otherwise the
    connection is closed.

    Args:
        rejected: Counts malformed requests.
        open_connections: Knows whether the connection waits for its client.
    """

    _deadline: asyncio.TimerHandle | None = None

    def __init__(
        self, *args: Any, rejected: RejectedRequests, open_connections: OpenConnections, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.logger = CONNECTION_LOGGER
        self._rejected = rejected
        self._open_connections = open_connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._peer = peer_of(transport.get_extra_info("socket"), self.client)
        self._close_after(REQUEST_SECONDS)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        for begin in range(0, len(data), PIECE_BYTES):
            self._receive(data[begin : begin + PIECE_BYTES])
            if self.transport.is_closing():
                return
            if self.headers and is_chunked(self.headers):
                # Parsed no further: the application answers 411, and the connection is closed.
                self.flow.pause_reading()
                return

    def _receive(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._close_after(REQUEST_SECONDS)
        receiving = self.conn.their_state in RECEIVING
        super().data_received(data)
        if receiving and self.conn.their_state not in RECEIVING:
            self._close_after(RESPONSE_SECONDS)
            if self.conn.their_state in RECEIVED:
                self._open_connections.serve(self._peer)

    def send_400_response(self, msg: str) -> None:
        """See `H11Protocol`."""
        self._rejected.count(MALFORMED)
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """See `H11Protocol`."""
        super().on_response_complete()
        if self.conn.their_state is not h11.DONE:
            self._open_connections.wait(self._peer)
        sent = not self.transport.get_write_buffer_size()
        self._close_after(REQUEST_SECONDS if sent and self.conn.their_state in RECEIVING else RESPONSE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def _close_after(self, seconds: float) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
