"""Rate limiters for many keys in bounded memory: token buckets, and fair shares of one bucket."""

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
        per_second: Requests per second that a bucket regains.
        burst: Requests that a full bucket allows at once.
    """

    per_second: float
    burst: float


class TokenBuckets(Generic[Key]):
    """One token bucket per key; a new key has a full bucket. Not thread-safe.

    Of too many keys the least recently used one is dropped. A dropped key has a full bucket again,
    as a new key has, so that a caller gains nothing by it.

    Args:
        rate: The rate of each key.
        clock: Monotonic seconds.
        max_keys: Maximum number of buckets.

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
        """The number of requests that the key's bucket allows now."""
        if key not in self._buckets:
            return self._rate.burst
        level, at = self._buckets[key]
        # A bucket loses nothing if the clock goes back.
        return min(self._rate.burst, level + max(self._clock() - at, 0.0) * self._rate.per_second)

    def wait_seconds(self, key: Key, reserve: float = 0.0, requests: int = 1) -> float:
        """Seconds until the bucket allows requests and still holds `reserve`; 0 if it does now."""
        missing = requests + reserve - self.level(key)
        return max(missing / self._rate.per_second, 0.0)

    def take(self, key: Key, requests: int = 1) -> bool:
        """Take requests from the key's bucket; takes none and returns False if it does not allow them."""
        level = self.level(key)
        if level < requests:
            return False
        self._buckets[key] = (level - requests, self._clock())
        self._buckets.move_to_end(key)
        while len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return True


class FairShares(Generic[Key]):
    """The recent use of a shared limit by each of its users. Not thread-safe.

    A user's recent use decays at the limit's rate divided by the number of active users. A user is
    within its share while its use is at most the limit's burst divided by the same number, so that
    users within their shares never use up the burst.

    Args:
        rate: The shared limit.
        clock: Monotonic seconds.
        max_keys: Maximum number of active users; beyond it, a new one has no share until another
            one's use has decayed.
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
        """Whether one more request of the user is within its share."""
        self._decay()
        if key not in self._used and len(self._used) >= self._max_keys:
            return False
        users = len(self._used) + (key not in self._used)
        return self._used.get(key, 0.0) + 1.0 <= self._rate.burst / users

    def use(self, key: Key, requests: int = 1) -> None:
        """Count requests of the user."""
        self._decay()
        if key in self._used or len(self._used) < self._max_keys:
            # At most the burst, so that a user that exceeded its share is within it again after a
            # bounded time.
            self._used[key] = min(self._used.get(key, 0.0) + requests, self._rate.burst)

    def _decay(self) -> None:
        now = self._clock()
        decayed = max(now - self._at, 0.0) * self._rate.per_second / max(len(self._used), 1)
        self._at = now
        if decayed:
            self._used = {key: used - decayed for key, used in self._used.items() if used > decayed}
