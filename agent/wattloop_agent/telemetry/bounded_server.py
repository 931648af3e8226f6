"""An HTTP server with a thread per connection and bounds on their number and duration.

`http.server` itself bounds neither, so that a few clients could take all threads of the agent.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import logging
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
MAX_CONNECTIONS_PER_ADDRESS = 8
# From the connection to the end of the request's headers, however slowly the client sends them.
REQUEST_SECONDS = 10.0
# From there to the last byte of the response.
RESPONSE_SECONDS = 20.0
# A client that sends or receives nothing for this long is disconnected.
IDLE_SECONDS = 10.0
# Request line and headers together. http.server alone allows 64 KiB per line, and 100 lines.
MAX_HEAD_BYTES = 16 * 1024
# Pause of accepting connections after the process or the kernel was out of descriptors or memory.
EXHAUSTED_SECONDS = 0.5
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_UNAVAILABLE = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

# Reasons why a connection is dropped.
CONNECTION_LIMIT = "connection_limit"
TIMEOUT = "timeout"


@dataclass
class _Admitted:
    address: str
    deadline_seconds: float


class ConnectionLimiter:
    """Limits the connections of a server: in total, per client address, and in time. Thread-safe.

    A client address at its limit is rejected. At the total limit, a new connection replaces the oldest one of the
    address with the most connections, so that a few addresses can't lock out the others.

    Attributes:
        dropped: Number of connections that were rejected or ended early, by reason:
            `CONNECTION_LIMIT` or `TIMEOUT`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # In order of arrival.
        self._admitted: dict[socket.socket, _Admitted] = {}
        # Ended early, but their threads have not returned yet.
        self._ending: set[socket.socket] = set()
        self.dropped: Counter[str] = Counter()

    @property
    def active(self) -> int:
        """Number of admitted connections."""
        return len(self._admitted)

    def admit(self, connection: socket.socket, address: str, now_seconds: float) -> bool:
        """Admit a new connection of a client address, without the port; return whether it was admitted."""
        with self._lock:
            by_address = Counter(each.address for each in self._admitted.values())
            if by_address[address] >= MAX_CONNECTIONS_PER_ADDRESS or len(self._ending) >= MAX_CONNECTIONS:
                self.dropped[CONNECTION_LIMIT] += 1
                return False
            if len(self._admitted) >= MAX_CONNECTIONS:
                busiest = max(by_address, key=lambda each: by_address[each])
                oldest = next(each for each, admitted in self._admitted.items() if admitted.address == busiest)
                self._end(oldest, CONNECTION_LIMIT)
            self._admitted[connection] = _Admitted(address, now_seconds + REQUEST_SECONDS)
            return True

    def request_received(self, connection: socket.socket, now_seconds: float) -> None:
        """Replace the deadline of the request by that of the response."""
        with self._lock:
            if connection in self._admitted:
                self._admitted[connection].deadline_seconds = now_seconds + RESPONSE_SECONDS

    def release(self, connection: socket.socket) -> None:
        """Release a connection, if it is admitted; must be called before its socket is closed."""
        with self._lock:
            self._admitted.pop(connection, None)
            self._ending.discard(connection)

    def end_overdue(self, now_seconds: float) -> None:
        """End the connections whose deadline has passed."""
        with self._lock:
            overdue = [each for each, admitted in self._admitted.items() if admitted.deadline_seconds <= now_seconds]
            for each in overdue:
                self._end(each, TIMEOUT)

    def _end(self, connection: socket.socket, reason: str) -> None:
        # Under the lock, like `release`: the descriptor of a closed socket is soon that of another.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        del self._admitted[connection]
        self._ending.add(connection)
        self.dropped[reason] += 1


class BoundedServer(ThreadingHTTPServer):
    """Serves admitted connections; others get a 503 response without a thread and are closed."""

    # Neither a scrape nor a stream must keep the agent from ending.
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BoundedHandler], limiter: ConnectionLimiter) -> None:
        self.limiter = limiter
        self._stopping = threading.Event()
        self._is_exhausted = False
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; pause if no descriptors are left, as the socket stays readable."""
        try:
            accepted = super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                if not self._is_exhausted:
                    logger.warning("metrics: no connection can be accepted", extra={"problem": error.strerror})
                self._is_exhausted = True
                self._stopping.wait(EXHAUSTED_SECONDS)
            raise
        self._is_exhausted = False
        return accepted

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread if it is admitted."""
        if self.limiter.admit(request, client_address[0], time.monotonic()):
            super().process_request(request, client_address)
            return
        request.setblocking(False)
        try:
            request.send(_UNAVAILABLE)
        except OSError:
            logger.debug("a client of the metrics disconnected before its rejection")
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Release the connection and close it."""
        self.limiter.release(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End overdue connections; the server's loop calls this every 0.5 s."""
        self.limiter.end_overdue(time.monotonic())

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log a request that ended without a response, because its client was gone or too slow."""
        logger.debug("a client of the metrics disconnected", exc_info=True)

    def shutdown(self) -> None:
        """Stop accepting connections."""
        self._stopping.set()
        super().shutdown()


class BoundedServerOnV6(BoundedServer):
    """A `BoundedServer` on IPv6."""

    address_family = socket.AF_INET6


class BoundedHandler(BaseHTTPRequestHandler):
    """Reads a request head of bounded size. Logs no requests."""

    timeout = IDLE_SECONDS
    server: BoundedServer
    server_version = "wattloop-agent"
    sys_version = ""

    def setup(self) -> None:
        """Bound the request head."""
        super().setup()
        self.rfile: Any = _Head(self.rfile)

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Send status and headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, data: bytes) -> None:
        """Send a part of the body; `OSError`: the client has disconnected."""
        self.wfile.write(data)

    def release_connection(self) -> None:
        """Exempt the connection from the limits of requests: streams have their own limits."""
        self.server.limiter.release(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log nothing, because a client could fill the log."""


class _Head:
    """The lines of a request head; `http.server` answers 431 if it is too long."""

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
