"""When each watch was last known to be alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable


class WatchHeartbeat:
    """The last sign of life of each watch: an event, or a comparison that found nothing missed.

    Args:
        kinds: The watched kinds.
        clock: Monotonic seconds.
    """

    def __init__(self, kinds: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._beats = dict.fromkeys(kinds, clock())

    def beat(self, kind: str) -> None:
        """Note a sign of life."""
        with self._lock:
            self._beats[kind] = self._clock()

    def ages_seconds(self) -> dict[str, float]:
        """Seconds since the last sign of life, by kind."""
        now = self._clock()
        with self._lock:
            return {kind: now - beat for kind, beat in self._beats.items()}
