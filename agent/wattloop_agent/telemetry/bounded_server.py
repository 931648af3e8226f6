"""A thread a connection, as `http.server` has it, for a bounded number of connections and a bounded time each."""

from __future__ import annotations

import errno
import http.client
import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO

from wattloop_agent.telemetry.connection_places import ConnectionPlaces

logger = logging.getLogger(__name__)

# A client that sends or takes nothing for this long is dropped.
SLOW_SECONDS = 10.0
# Request line and headers together. http.server alone takes 64 KiB a line, and 100 lines.
MAX_HEAD_BYTES = 16 * 1024
# How long no connection is accepted after the process or the kernel had no descriptor or memory for one.
EXHAUSTED_SECONDS = 0.5
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class BoundedServer(ThreadingHTTPServer):
    """Serves the connections that have a place; the others are answered with 503 and closed, without a thread.

    Attributes:
        places: The connections that it serves now.
    """

    # Neither a scrape nor a stream must keep an agent from ending.
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[RateLimitedHandler], places: ConnectionPlaces) -> None:
        self.places = places
        self._ending = threading.Event()
        self._is_exhausted = False
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; a process without descriptors pauses, since its listening socket stays readable."""
        try:
            accepted = super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                if not self._is_exhausted:
                    logger.warning("metrics: no connection can be accepted", extra={"problem": error.strerror})
                self._is_exhausted = True
                self._ending.wait(EXHAUSTED_SECONDS)
            raise
        self._is_exhausted = False
        return accepted

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own if there is a place for it."""
        if self.places.take(request, client_address[0], time.monotonic()):
            super().process_request(request, client_address)
            return
        request.setblocking(False)
        try:
            request.send(_BUSY)
        except OSError:
            logger.debug("a client of the metrics is gone before its refusal")
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Free the connection's place and close it."""
        self.places.leave(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections that have taken too long; called at each turn of the server's loop, every 0.5 s."""
        self.places.end_overdue(time.monotonic())

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log a request that ended without an answer: its client is gone, or was too slow."""
        logger.debug("a client of the metrics is gone", exc_info=True)

    def shutdown(self) -> None:
        """Stop accepting connections."""
        self._ending.set()
        super().shutdown()


class BoundedServerOnV6(BoundedServer):
    """The same on IPv6."""

    address_family = socket.AF_INET6


class RateLimitedHandler(BaseHTTPRequestHandler):
    """Reads a head of a bounded size, and logs nothing of a request."""

    timeout = SLOW_SECONDS
    server: BoundedServer
    server_version = "wattloop-agent"
    sys_version = ""

    def setup(self) -> None:
        """Bound what is read."""
        super().setup()
        self.rfile: Any = _Head(self.rfile)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log nothing: a client could fill the log."""


class _Head:
    """The lines of a request's head; `http.server` answers 431 where there are too many."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left_bytes = MAX_HEAD_BYTES

    def readline(self, limit: int) -> bytes:
        if not self._left_bytes:
            raise http.client.LineTooLong("request head")
        line = self._stream.readline(min(limit, self._left_bytes))
        self._left_bytes -= len(line)
        return line

    def close(self) -> None:
        self._stream.close()
