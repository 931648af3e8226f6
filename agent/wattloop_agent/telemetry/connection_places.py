"""Bounds the connections of an HTTP server: how many in all, how many of a client's address, and for how long each."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

MAX_CONNECTIONS = 32
MAX_CONNECTIONS_OF_AN_ADDRESS = 8
# From the connection to the end of the request's headers, however the client spreads them.
REQUEST_SECONDS = 10.0
# From there to the last byte of the answer.
ANSWER_SECONDS = 20.0

CROWDED = "crowded"
SLOW = "slow"


class Connection(Protocol):
    """The part of a socket that is needed to end its connection from another thread."""

    def shutdown(self, how: int, /) -> None:
        """Wake up whoever reads from or writes to it."""


@dataclass
class _Place:
    address: str
    deadline_seconds: float


class ConnectionPlaces:
    """The connections that a server serves at a moment; used from several threads.

    An address that has its share is refused. Where all places are taken, a newcomer gets the place of the oldest
    connection of the address that has most of them: many connections of a few addresses lock out nobody else.

    Attributes:
        cut: How many connections were refused or ended early, by reason: `CROWDED`, `SLOW`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # In the order of their arrival.
        self._places: dict[Connection, _Place] = {}
        # Ended early; their threads have not noticed yet.
        self._leaving: set[Connection] = set()
        self.cut: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many connections have a place."""
        return len(self._places)

    def take(self, connection: Connection, address: str, now_seconds: float) -> bool:
        """Give a place to a new connection; returns whether it got one.

        Args:
            connection: The connection.
            address: The client's, without its port.
            now_seconds: The monotonic clock.
        """
        with self._lock:
            by_address = Counter(place.address for place in self._places.values())
            if by_address[address] >= MAX_CONNECTIONS_OF_AN_ADDRESS or len(self._leaving) >= MAX_CONNECTIONS:
                self.cut[CROWDED] += 1
                return False
            if len(self._places) >= MAX_CONNECTIONS:
                crowded = max(by_address, key=lambda each: by_address[each])
                oldest = next(each for each, place in self._places.items() if place.address == crowded)
                self._end(oldest, CROWDED)
            self._places[connection] = _Place(address, now_seconds + REQUEST_SECONDS)
            return True

    def answering(self, connection: Connection, now_seconds: float) -> None:
        """The request has come as a whole: from now on the time of the answer counts."""
        with self._lock:
            if connection in self._places:
                self._places[connection].deadline_seconds = now_seconds + ANSWER_SECONDS

    def leave(self, connection: Connection) -> None:
        """Free the connection's place, if it has one; before its socket is closed."""
        with self._lock:
            self._places.pop(connection, None)
            self._leaving.discard(connection)

    def end_overdue(self, now_seconds: float) -> None:
        """End the connections that have taken too long."""
        with self._lock:
            for each in [each for each, place in self._places.items() if place.deadline_seconds <= now_seconds]:
                self._end(each, SLOW)

    def _end(self, connection: Connection, reason: str) -> None:
        # Under the lock, as `leave` is: a socket's number is soon another's once it is closed.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        del self._places[connection]
        self._leaving.add(connection)
        self.cut[reason] += 1
