"""Rate limits of reports: the caller's own, then one that all namespaces share fairly."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from wattloop_operator.reporting.interfaces import BearerToken, TooManyRequestsError

MAX_TOKENS = 20_000
MAX_RECURRENCES = 10_000
MAX_ADDRESSES = 10_000
MAX_NAMESPACES = 1_000
# A message of a rank or of an agent with more bytes counts as several. The largest one takes 40 ms of processor time.
BYTES_PER_MESSAGE = 32 * 1024
MAX_FURTHER_MESSAGES = 32
# The part of the shared burst that only namespaces within their equal share may use.
RESERVED_PART = 0.5
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


@dataclass(frozen=True)
class ReportRates:
    """The rates of all limits.

    Attributes:
        token: Requests with one token, hence of one pod or of one node's agent.
        recurrence: Reports for one recurrence by all of its pods. The burst allows 1,000 ranks that
            report at once.
        pipeline: Messages of the ranks of one pipeline. The burst allows 2,000 ranks that register at once.
        pipelines: Messages of the ranks of all pipelines.
        address: TokenReviews for one peer address, of tokens that were not authorized before.
        reviews: TokenReviews of such tokens for all peers.
    """

    token: Rate
    recurrence: Rate
    total: Rate
    pipeline: Rate
    pipelines: Rate
    address: Rate
    reviews: Rate


CLUSTER_RATES = ReportRates(
    token=Rate(per_second=5.0, burst=60.0),
    recurrence=Rate(per_second=50.0, burst=2_000.0),
    total=Rate(per_second=200.0, burst=4_000.0),
    pipeline=Rate(per_second=200.0, burst=4_000.0),
    pipelines=Rate(per_second=400.0, burst=16_000.0),
    address=Rate(per_second=4.0, burst=64.0),
    reviews=Rate(per_second=50.0, burst=1_000.0),
)
# One user's own runs on this machine: an epoch may take milliseconds, and only a script out of
# control exceeds these.
LOCAL_RATES = replace(
    CLUSTER_RATES,
    token=Rate(per_second=200.0, burst=2_000.0),
    recurrence=Rate(per_second=200.0, burst=2_000.0),
    total=Rate(per_second=400.0, burst=4_000.0),
)


class SharedLimit:
    """A limit of each recurrence, then one that all namespaces share fairly. Not thread-safe.

    `count` raises TooManyRequestsError beyond one of them.

    Args:
        subject: What all together are called in messages.
    """

    def __init__(self, clock: Callable[[], float], recurrence: Rate, total: Rate, subject: str) -> None:
        self._reserve = RESERVED_PART * total.burst
        self._shares: FairShares[str] = FairShares(Rate(total.per_second, self._reserve), clock, MAX_NAMESPACES)
        self._recurrences: TokenBuckets[tuple[str, str]] = TokenBuckets(recurrence, clock, MAX_RECURRENCES)
        self._total: TokenBuckets[None] = TokenBuckets(total, clock, 1)
        self._subject = subject

    def count(self, namespace: str, name: str, requests: int = 1) -> None:
        """Count requests for a recurrence.

        Once half of the shared burst is used up, each namespace has an equal share of the rest, so that those of one
        namespace do not use up the shares of the others.
        """
        key = (namespace, name)
        wait = self._recurrences.wait_seconds(key, requests=requests)
        if wait:
            raise TooManyRequestsError(f"recurrence {namespace}/{name}", wait)
        reserve = 0.0 if self._shares.has_share(namespace) else self._reserve
        wait = self._total.wait_seconds(None, reserve, requests)
        if wait:
            raise TooManyRequestsError(self._subject, wait)
        self._recurrences.take(key, requests)
        self._total.take(None, requests)
        self._shares.use(namespace, requests)


class ReportLimits:
    """Counts the requests of each token and the reports of each recurrence. Thread-safe.

    Each method raises TooManyRequestsError beyond a limit.

    A request beyond a limit takes nothing from any bucket, so a caller over its own limit uses
    nothing of another's or of the shared one.
    """

    def __init__(self, clock: Callable[[], float], rates: ReportRates = CLUSTER_RATES) -> None:
        self._lock = threading.Lock()
        self._tokens: TokenBuckets[bytes] = TokenBuckets(rates.token, clock, MAX_TOKENS)
        self._reports = SharedLimit(clock, rates.recurrence, rates.total, "all recurrences together")
        self._pipelines = SharedLimit(clock, rates.pipeline, rates.pipelines, "all pipelines together")
        self._addresses: TokenBuckets[str] = TokenBuckets(rates.address, clock, MAX_ADDRESSES)
        self._reviews: TokenBuckets[None] = TokenBuckets(rates.reviews, clock, 1)

    def count_token(self, token: BearerToken) -> None:
        """Count a request with a token that is not checked yet."""
        with self._lock:
            if not self._tokens.take(token.digest):
                raise TooManyRequestsError("this token", self._tokens.wait_seconds(token.digest))

    def count_report(self, namespace: str, name: str) -> None:
        """Count a report of a caller that is authorized for this recurrence."""
        with self._lock:
            self._reports.count(namespace, name)

    def count_pipeline_message(self, namespace: str, name: str) -> None:
        """Count a message of a rank that is authorized for this recurrence.

        Many ranks of a pipeline send at once, so these do not count as reports.
        """
        with self._lock:
            self._pipelines.count(namespace, name)

    def count_bytes(self, token: BearerToken, size_bytes: int) -> None:
        """Count a long message as several, before it is read: its reading takes that much longer."""
        further = _further_messages(size_bytes)
        with self._lock:
            if further and not self._tokens.take(token.digest, further):
                raise TooManyRequestsError("this token", self._tokens.wait_seconds(token.digest, requests=further))

    def count_pipeline_bytes(self, token: BearerToken, namespace: str, name: str, size_bytes: int) -> None:
        """Count a long message of a rank as several, also of its pipeline."""
        further = _further_messages(size_bytes)
        if not further:
            return
        with self._lock:
            wait = self._tokens.wait_seconds(token.digest, requests=further)
            if wait:
                raise TooManyRequestsError("this token", wait)
            self._pipelines.count(namespace, name, further)
            self._tokens.take(token.digest, further)

    def count_review(self, address: str) -> None:
        """Count a TokenReview of a token that was not authorized before."""
        with self._lock:
            wait = self._addresses.wait_seconds(address)
            if wait:
                raise TooManyRequestsError(f"unknown tokens from {address or 'this address'}", wait)
            wait = self._reviews.wait_seconds(None)
            if wait:
                raise TooManyRequestsError("unknown tokens from all addresses", wait)
            self._addresses.take(address)
            self._reviews.take(None)


def _further_messages(size_bytes: int) -> int:
    return min(size_bytes // BYTES_PER_MESSAGE, MAX_FURTHER_MESSAGES)
