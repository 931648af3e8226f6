"""Who may use a limit that is scarce: each of the active callers its equal part, however much one of them sends."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from wattloop_operator.reporting.token_buckets import Rate

Key = TypeVar("Key", bound=Hashable)


class FairShares(Generic[Key]):
    """What each caller has used of a shared limit of late. Not safe between threads.

    What a caller has used is forgotten at the limit's rate divided by the number of active callers. A caller is within
    its share while that is at most the limit's burst divided by the same number, so that all together
    never use up the burst.

    Args:
        rate: The shared limit.
        clock: Monotonic seconds.
        max_keys: How many callers are kept; beyond that, a new one has no share until another one's use is forgotten.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float], max_keys: int) -> None:
        self._rate = rate
        self._clock = clock
        self._max_keys = max_keys
        self._used: dict[Key, float] = {}
        self._at = clock()

    def __len__(self) -> int:
        return len(self._used)

    def has_share(self, key: Key) -> bool:
        """Whether one more request of the caller is within its share."""
        self._forget()
        if key not in self._used and len(self._used) >= self._max_keys:
            return False
        callers = len(self._used) + (key not in self._used)
        return self._used.get(key, 0.0) + 1.0 <= self._rate.burst / callers

    def use(self, key: Key) -> None:
        """Count a request of the caller."""
        self._forget()
        if key in self._used or len(self._used) < self._max_keys:
            # No more than the whole: a caller that flooded is within its share again after a time that is bounded.
            self._used[key] = min(self._used.get(key, 0.0) + 1.0, self._rate.burst)

    def _forget(self) -> None:
        now = self._clock()
        forgotten = max(now - self._at, 0.0) * self._rate.per_second / max(len(self._used), 1)
        self._at = now
        if forgotten:
            self._used = {key: used - forgotten for key, used in self._used.items() if used > forgotten}
