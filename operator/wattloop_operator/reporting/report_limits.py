"""Rate limits of reports: the caller's own, then one that all namespaces share fairly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from wattloop_operator.reporting.interfaces import BearerToken, TooManyRequestsError
from wattloop_operator.reporting.rate_limiters import FairShares, Rate, TokenBuckets

MAX_TOKENS = 20_000
MAX_RECURRENCES = 10_000
MAX_ADDRESSES = 10_000
MAX_NAMESPACES = 1_000
# A message of a rank or of an agent with more bytes counts as several. The largest one takes 40 ms of processor time.
BYTES_PER_MESSAGE = 32 * 1024
MAX_FURTHER_MESSAGES = 32
# The part of the shared burst that only namespaces within their equal share may use.
RESERVED_PART = 0.5


@dataclass(frozen=True)
class ReportRates:
    """The rates of all limits.

    Attributes:
        token: Requests with one token, hence of one pod or of one node's agent.
        recurrence: Reports for one recurrence by all of its pods. The burst allows 1,000 ranks that
            report at once.
        total: Reports for all recurrences.
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

    Args:
        clock: Monotonic seconds.
        recurrence: The rate of one recurrence.
        total: The rate of all together.
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

        Raises:
            TooManyRequestsError: There were too many for the recurrence, or for all together.
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

    A request beyond a limit takes nothing from any bucket, so a caller over its own limit uses
    nothing of another's or of the shared one.

    Args:
        clock: Monotonic seconds.
        rates: The limits.
    """

    def __init__(self, clock: Callable[[], float], rates: ReportRates = CLUSTER_RATES) -> None:
        self._lock = threading.Lock()
        self._tokens: TokenBuckets[bytes] = TokenBuckets(rates.token, clock, MAX_TOKENS)
        self._reports = SharedLimit(clock, rates.recurrence, rates.total, "all recurrences together")
        self._pipelines = SharedLimit(clock, rates.pipeline, rates.pipelines, "all pipelines together")
        self._addresses: TokenBuckets[str] = TokenBuckets(rates.address, clock, MAX_ADDRESSES)
        self._reviews: TokenBuckets[None] = TokenBuckets(rates.reviews, clock, 1)

    def count_token(self, token: BearerToken) -> None:
        """Count a request with a token that is not checked yet.

        Raises:
            TooManyRequestsError: There were too many requests with this token.
        """
        with self._lock:
            if not self._tokens.take(token.digest):
                raise TooManyRequestsError("this token", self._tokens.wait_seconds(token.digest))

    def count_report(self, namespace: str, name: str) -> None:
        """Count a report of a caller that is authorized for this recurrence.

        Raises:
            TooManyRequestsError: There were too many reports for the recurrence, or for all
                together.
        """
        with self._lock:
            self._reports.count(namespace, name)

    def count_pipeline_message(self, namespace: str, name: str) -> None:
        """Count a message of a rank that is authorized for this recurrence.

        Many ranks of a pipeline send at once, so these do not count as reports.

        Raises:
            TooManyRequestsError: There were too many messages for the pipeline, or for all together.
        """
        with self._lock:
            self._pipelines.count(namespace, name)

    def count_bytes(self, token: BearerToken, size_bytes: int) -> None:
        """Count a long message as several, before it is read: its reading takes that much longer.

        Raises:
            TooManyRequestsError: There were too many of this token.
        """
        further = _further_messages(size_bytes)
        with self._lock:
            if further and not self._tokens.take(token.digest, further):
                raise TooManyRequestsError("this token", self._tokens.wait_seconds(token.digest, requests=further))

    def count_pipeline_bytes(self, token: BearerToken, namespace: str, name: str, size_bytes: int) -> None:
        """Count a long message of a rank as several, also of its pipeline.

        Raises:
            TooManyRequestsError: There were too many of this token, for the pipeline, or for all together.
        """
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
        """Count a TokenReview of a token that was not authorized before.

        Raises:
            TooManyRequestsError: The peer's address, or all addresses together, caused too many.
        """
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
