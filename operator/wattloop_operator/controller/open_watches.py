"""Which watches of kopf have an open stream, or are about to open one.

kopf ends a watch for good at an error that it does not foresee, and its thread lives on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from yarl import URL

# kopf waits at most `RETRY_SECONDS` between the requests of a watch.
RETRY_SECONDS = 2.0
MAX_CLOSED_SECONDS = 6.0


@dataclass(frozen=True)
class _Watch:
    is_open: bool
    changed_at: float


class OpenWatches:
    """Remembers the requests of each watch, by its path. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._watches: dict[str, _Watch] = {}

    def begin(self, url: URL) -> None:
        """Record that a watch, or the list before it, is requested; kopf sends one request of a path at a time."""
        with self._lock:
            if url.path in self._watches or url.query.get("watch"):
                self._watches[url.path] = _Watch(True, self._clock())

    def end(self, url: URL) -> None:
        """Record that a request failed, or that its response has ended."""
        with self._lock:
            if url.path in self._watches:
                self._watches[url.path] = _Watch(False, self._clock())

    def problem(self) -> str:
        """Which watches are closed for longer than kopf waits; empty if none is."""
        now = self._clock()
        with self._lock:
            closed = {
                path: now - watch.changed_at
                for path, watch in self._watches.items()
                if not watch.is_open and now - watch.changed_at > MAX_CLOSED_SECONDS
            }
        return ", ".join(f"the watch of {path} ended {age:.0f} s ago" for path, age in sorted(closed.items()))
