"""Which watches of kopf are requested, and which of them the API server serves.

kopf ends a watch for good at an error that it does not foresee, and its thread lives on. While the
API server is away, kopf requests each watch again and again, and none of them has a stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from yarl import URL

# kopf waits at most `RETRY_SECONDS` between the requests of a watch.
RETRY_SECONDS = 2.0
MAX_CLOSED_SECONDS = 6.0


class OpenWatches:
    """Remembers the requests of each watch, by its path. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Since when a watch is not requested, and since when it has no response; None: it is, or has.
        self._closed_at: dict[str, float | None] = {}
        self._unserved_at: dict[str, float | None] = {}

    def begin(self, url: URL) -> None:
        """Record that a watch, or the list before it, is requested; kopf sends one request of a path at a time."""
        with self._lock:
            if url.path in self._closed_at or url.query.get("watch"):
                self._closed_at[url.path] = None
                self._unserved_at.setdefault(url.path, self._clock())

    def serve(self, url: URL) -> None:
        """Record that the API server responds without an error."""
        with self._lock:
            if url.path in self._closed_at:
                self._unserved_at[url.path] = None

    def end(self, url: URL) -> None:
        """Record that a request failed, or that its response has ended."""
        with self._lock:
            if url.path in self._closed_at:
                self._closed_at[url.path] = self._clock()
                if self._unserved_at[url.path] is None:
                    self._unserved_at[url.path] = self._clock()

    def problem(self) -> str:
        """Which watches kopf does not request for longer than it waits; empty if there is none."""
        return self._listed(self._closed_at, "the watch of {path} ended {age:.0f} s ago")

    def unserved(self) -> str:
        """Which watches the API server does not serve; empty if it serves all."""
        return self._listed(self._unserved_at, "the API server has not served the watch of {path} for {age:.0f} s")

    def _listed(self, since: Mapping[str, float | None], text: str) -> str:
        now = self._clock()
        with self._lock:
            ages = {path: now - at for path, at in since.items() if at is not None and now - at > MAX_CLOSED_SECONDS}
        return ", ".join(text.format(path=path, age=age) for path, age in sorted(ages.items()))
