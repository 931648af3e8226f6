"""The open connections of a server: bounded, and shared fairly between the addresses that they come from.

uvicorn knows a connection only after its TLS handshake, and asyncio accepts any number of connections whose clients
never begin one. So they are counted where they are accepted.
"""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

Peer = tuple[str, int]
"""Address and port of a client; at a Unix socket, which has one address for all, the connection's descriptor."""
# Connections that were closed by this side, and whose descriptors the event loop has yet to close.
MAX_CLOSING = 64


class OpenConnections:
    """The open connections by address. Not thread-safe: the server's event loop alone uses it.

    A new connection beyond the limit takes the place of another one: of the address that has most, the one that has
    waited longest without a complete request. So neither idle connections nor half requests of one address keep
    another address out, and an address may use all places while no other one needs them.

    Args:
        limit: How many there may be.
        on_full: Called for each connection that is closed, or not accepted, for want of a place.
    """

    def __init__(self, limit: int, on_full: Callable[[], None] = lambda: None) -> None:
        self._limit = limit
        self._on_full = on_full
        self._open: dict[Peer, Callable[[], None]] = {}
        self._of_address: Counter[str] = Counter()
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


def peer_of(connection: socket.socket, address: Any) -> Peer:
    """The peer of a connection, from the address of its client; the address of a Unix socket's client is empty."""
    return (str(address[0]), int(address[1])) if address else ("", connection.fileno())


class BoundedListener(socket.socket):
    """A listening socket of asyncio that counts what it accepts.

    Args:
        listening: The socket, which this one replaces.
        connections: Counts the connections.
    """

    def __init__(self, listening: socket.socket, connections: OpenConnections) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self._connections = connections
        self._closing = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """See `socket.socket`.

        Raises:
            BlockingIOError: None can be accepted before the event loop has closed others.
        """
        if self._closing >= MAX_CLOSING:
            raise BlockingIOError
        accepted, address = super().accept()
        if not self._connections.make_room():
            accepted.close()
            raise ConnectionAbortedError
        peer = peer_of(accepted, address)
        connection = _Connection(accepted)

        def close() -> None:
            # The event loop notices the end and closes the connection, in a TLS handshake too.
            connection.is_closing = True
            self._closing += 1
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

        def closed() -> None:
            self._closing -= connection.is_closing
            self._connections.remove(peer, close)

        connection.on_close = closed
        self._connections.add(peer, close)
        return connection, address


class _Connection(socket.socket):
    """An accepted socket that says when it is closed."""

    def __init__(self, accepted: socket.socket) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.is_closing = False
        self.on_close: Callable[[], None] = lambda: None

    def close(self) -> None:
        """See `socket.socket`."""
        super().close()
        on_close, self.on_close = self.on_close, lambda: None
        on_close()
