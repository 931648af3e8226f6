"""What was found out a moment ago, so that what comes every few seconds is not asked about each time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class TimedCache(Generic[Key, Value]):
    """Values by key, each for a while; of too many the oldest are forgotten. Safe to use from several threads.

    Args:
        clock: Monotonic seconds.
        seconds: How long a value is good.
        most: How many are kept.

    Example:
        >>> now = 0.0
        >>> remembered = TimedCache(lambda: now, seconds=60.0, most=1)
        >>> remembered.keep("a", 1)
        >>> remembered.get("a")
        1
        >>> now = 60.0
        >>> remembered.get("a") is None
        True
    """

    def __init__(self, clock: Callable[[], float], *, seconds: float, most: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value, where it is still good."""
        with self._lock:
            at, value = self._kept.get(key, (0.0, None))
        return value if value is not None and self._clock() - at < self._seconds else None

    def keep(self, key: Key, value: Value) -> None:
        """Remember a value from now on."""
        with self._lock:
            self._kept[key] = (self._clock(), value)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
