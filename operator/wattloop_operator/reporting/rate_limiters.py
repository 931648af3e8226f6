"""Rate limiters for many keys in bounded memory: a token bucket per key, and equal shares of a shared bucket."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Rate:
    """A sustained rate and a burst.

    Attributes:
        per_second: Requests a second that a full bucket regains.
        burst: Requests that a full bucket allows at once.
    """

    per_second: float
    burst: float


class TokenBuckets(Generic[Key]):
    """One bucket a key; a key that was never seen has a full bucket. Not safe between threads.

    Of too many keys the least recently used one is dropped. A dropped key has a full bucket again, so a caller gains
    nothing by it that a new key would not give.

    Args:
        rate: The rate of each key.
        clock: Monotonic seconds.
        max_keys: How many buckets are kept.

    Example:
        >>> now = 0.0
        >>> buckets = TokenBuckets(Rate(per_second=1.0, burst=2.0), lambda: now, max_keys=10)
        >>> buckets.take("a"), buckets.take("a"), buckets.wait_seconds("a"), buckets.wait_seconds("b")
        (True, True, 1.0, 0.0)
        >>> buckets.take("a")
        False
        >>> now = 1.0
        >>> buckets.take("a")
        True
    """

    def __init__(self, rate: Rate, clock: Callable[[], float], max_keys: int) -> None:
        self._rate = rate
        self._clock = clock
        self._max_keys = max_keys
        self._buckets: OrderedDict[Key, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def level(self, key: Key) -> float:
        """How many requests the key's bucket allows now."""
        if key not in self._buckets:
            return self._rate.burst
        level, at = self._buckets[key]
        # A clock that does not move back is the caller's; a bucket never loses by one that does.
        return min(self._rate.burst, level + max(self._clock() - at, 0.0) * self._rate.per_second)

    def wait_seconds(self, key: Key, reserve: float = 0.0) -> float:
        """Seconds until the key's bucket allows a request and still holds `reserve`; 0: it does now."""
        missing = 1.0 + reserve - self.level(key)
        return max(missing / self._rate.per_second, 0.0)

    def take(self, key: Key) -> bool:
        """Take one request from the key's bucket; False, and nothing is taken, where it allows none."""
        level = self.level(key)
        if level < 1.0:
            return False
        self._buckets[key] = (level - 1.0, self._clock())
        self._buckets.move_to_end(key)
        while len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return True


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
