"""One HTTP connection that nobody can hold for long: uvicorn's, with the bounds that it has not."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from wattloop_operator.http.rejected_requests import RefusedRequests

# A request has 1 MiB at most, so that a client that takes longer to send one is gone or means harm.
REQUEST_SECONDS = 10.0
# Far longer than any client of ours waits for an answer: whoever does not take it in by then is gone, too.
ANSWER_SECONDS = 60.0
RECEIVING = frozenset({h11.IDLE, h11.SEND_BODY})


class BoundedConnection(H11Protocol):
    """uvicorn bounds only the time between requests: a client that says nothing, or its request a byte a minute, stays.

    Here a request is to have come as a whole within `REQUEST_SECONDS` of its first byte, or of the connection, and its
    answer to be taken in within `ANSWER_SECONDS`; else the connection is cut. Beyond twice as many connections as are
    served (`limit_concurrency`), a new one is cut at once: each takes a file descriptor, which the rest of the process
    needs too.
    """

    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, refused: RefusedRequests, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = refused.logger

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > 2 * self.limit_concurrency:
            transport.abort()
        else:
            self._cut_in(REQUEST_SECONDS)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._cut_in(REQUEST_SECONDS)
        receiving = self.conn.their_state in RECEIVING
        super().data_received(data)
        if receiving and self.conn.their_state not in RECEIVING:
            self._cut_in(ANSWER_SECONDS)

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        taken_in = not self.transport.get_write_buffer_size()
        self._cut_in(REQUEST_SECONDS if taken_in and self.conn.their_state in RECEIVING else ANSWER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._leave()
        super().connection_lost(exc)

    def _cut_in(self, seconds: float) -> None:
        self._leave()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _leave(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
