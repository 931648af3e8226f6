"""Limits of a server: its open connections and its running requests, shared fairly between addresses.

Connections are counted from their acceptance, so also those whose clients never begin a TLS handshake. What is
rejected is counted, and logged at most once a minute.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable

logger = logging.getLogger(__name__)

# Reasons of rejection: label values of a metric.
MALFORMED, OVERLOADED = "malformed", "overloaded"
MESSAGES = {MALFORMED: "invalid HTTP request", OVERLOADED: "too many connections or requests"}
LOG_INTERVAL_SECONDS = 60.0

Peer = tuple[str, int]
"""Address and port of a client; at a Unix socket, which has one address for all, the connection's descriptor."""


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


class OpenConnections:
    """The open connections by address, and the requests that run. Not thread-safe: the server's event loop uses it.

    A new connection beyond the limit takes the place of another one: of the address that has most, the one that has
    waited longest without a complete request. So neither idle connections nor half requests of one address keep
    another address out, and an address may use all places while no other one needs them.

    From half as many running requests on, each address that has some may have an equal share of these.

    Args:
        limit: How many connections there may be.
        on_full: Called for each connection that is closed, or not accepted, for want of a place.
    """

    def __init__(self, limit: int, on_full: Callable[[], None] = lambda: None) -> None:
        self._limit = limit
        self._on_full = on_full
        self._open: dict[Peer, Callable[[], None]] = {}
        self._of_address: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        # Of each address, those that may be closed, in the order in which they began to wait.
        self._waiting: dict[str, dict[Peer, None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def make_room(self) -> bool:
        """Close a connection if there is no place for a new one; returns whether there is one now."""
        if len(self._open) < self._limit:
            return True
        self._on_full()
        address = max(self._waiting, key=lambda each: self._of_address[each], default=None)
        if address is None:
            return False
        peer = next(iter(self._waiting[address]))
        close = self._open[peer]
        self.remove(peer, close)
        close()
        return True

    def add(self, peer: Peer, close: Callable[[], None]) -> None:
        """Count a new connection, which waits for its first request.

        Args:
            peer: Address and port of the client.
            close: Closes the connection.
        """
        if peer in self._open:
            # Its client was quicker to use the port again than the event loop to notice the end.
            self.remove(peer, self._open[peer])
        self._open[peer] = close
        self._of_address[peer[0]] += 1
        self.wait(peer)

    def remove(self, peer: Peer, close: Callable[[], None]) -> None:
        """Count a connection no longer; nothing if another one has its peer meanwhile."""
        if self._open.get(peer) != close:
            return
        self.serve(peer)
        del self._open[peer]
        self._of_address[peer[0]] -= 1
        if not self._of_address[peer[0]]:
            del self._of_address[peer[0]]

    def serve(self, peer: Peer) -> None:
        """A connection has sent a complete request: it keeps its place until the response."""
        waiting = self._waiting.get(peer[0], {})
        waiting.pop(peer, None)
        if not waiting:
            self._waiting.pop(peer[0], None)

    def wait(self, peer: Peer) -> None:
        """A connection waits for its client."""
        if peer in self._open:
            waiting = self._waiting.setdefault(peer[0], {})
            waiting.pop(peer, None)
            waiting[peer] = None

    def begin_request(self, address: str) -> bool:
        """Count a request, unless its address has more than its share while too many run; returns whether it may."""
        most, others = self._limit // 2, len(self._running) - (address in self._running)
        if self._running.total() >= most and self._running[address] >= most // (others + 1):
            return False
        self._running[address] += 1
        return True

    def end_request(self, address: str) -> None:
        """A request has ended."""
        self._running[address] -= 1
        if not self._running[address]:
            del self._running[address]
