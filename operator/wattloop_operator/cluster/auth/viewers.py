"""The users of the live page in a cluster: who a token belongs to.

The API server says so, by a TokenReview that is remembered for a short time: so long a token that is revoked still
counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import TTLCache

from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.auth.signing_keys import SigningKeys
from wattloop_operator.cluster.auth.token_review import (
    MAX_TOKEN_CHARACTERS,
    REJECTED_SECONDS,
    SERVICE_ACCOUNT_PREFIX,
    claimed_audiences,
    reviewed_user,
)
from wattloop_operator.reporting.interfaces import BearerToken, TooManyRequestsError, UnknownCallerError
from wattloop_operator.reporting.report_limits import Rate, TokenBuckets

# A token with it is of no use at the API server, if somebody steals it.
UI_AUDIENCE = "wattloop.dev/ui"
REVIEWED_SECONDS = 60.0
MAX_VIEWERS = 1_000
# Tokens that were valid in the last hour are reviewed without a limit, so that nobody uses it up for their users.
KNOWN_SECONDS = 3600.0
MAX_KNOWN = 20_000
# Of tokens that the API server has not signed: those of OpenID Connect look like made-up ones before their review.
UNKNOWN_TOKENS = Rate(per_second=20.0, burst=400.0)
# Of the peer's address, so that one caller leaves reviews to others.
UNKNOWN_TOKENS_OF_ADDRESS = Rate(per_second=2.0, burst=40.0)
MAX_ADDRESSES = 10_000
# Of all accounts of a namespace: tokens that the API server has signed.
UNKNOWN_TOKENS_OF_OWNER = Rate(per_second=5.0, burst=100.0)
NOT_VALID = "the token is not valid in this cluster, or has expired"


@dataclass(frozen=True)
class Viewer:
    """A user, as the API server describes it.

    Attributes:
        name: Its name, such as system:serviceaccount:team:reader.
        uid: Its uid; empty if it has none.
        groups: Its groups.
        extra: What else authorizers may ask for, by name.
    """

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def owner(self) -> str:
        """Whose share of what viewers share he uses: of a service account, that of its namespace.

        Whoever manages a namespace makes as many accounts in it as he likes; nobody makes users.
        """
        return owner_of(self.name)

    @property
    def home(self) -> str:
        """The namespace of a service account; empty of another user."""
        return self.owner.removeprefix(SERVICE_ACCOUNT_PREFIX) if self.owner != self.name else ""


def owner_of(name: str) -> str:
    """See `Viewer.owner`.

    Example:
        >>> owner_of("system:serviceaccount:team:reader"), owner_of("ann")
        ('system:serviceaccount:team', 'ann')
    """
    return name.rpartition(":")[0] if name.startswith(SERVICE_ACCOUNT_PREFIX) else name


class ViewerTokens:
    """Identifies the users of tokens. Thread-safe. The keys are digests: no token stays in these caches.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._viewers: TTLCache[bytes, Viewer] = TTLCache(MAX_VIEWERS, REVIEWED_SECONDS, clock)
        self._rejected: TTLCache[bytes, bool] = TTLCache(MAX_VIEWERS, REJECTED_SECONDS, clock)
        self._known: TTLCache[bytes, bool] = TTLCache(MAX_KNOWN, KNOWN_SECONDS, clock)
        self._unknown: TokenBuckets[None] = TokenBuckets(UNKNOWN_TOKENS, clock, 1)
        self._addresses: TokenBuckets[str] = TokenBuckets(UNKNOWN_TOKENS_OF_ADDRESS, clock, MAX_ADDRESSES)
        self._owners: TokenBuckets[str] = TokenBuckets(UNKNOWN_TOKENS_OF_OWNER, clock, MAX_VIEWERS)
        self._keys = SigningKeys(api, clock)

    def viewer_of(self, token: BearerToken, address: str) -> Viewer:
        """The user of a token.

        Args:
            token: The token.
            address: The peer's address.

        Raises:
            UnknownCallerError: The token is not valid.
            TooManyRequestsError: Too many unknown tokens were sent recently.
            OperationError: The API server does not answer now.
        """
        digest = token.digest
        with self._lock:
            viewer = self._viewers.get(digest)
            if viewer is not None:
                return viewer
            if digest in self._rejected or not 0 < len(token.text) <= MAX_TOKEN_CHARACTERS:
                raise UnknownCallerError(NOT_VALID)
            is_known = digest in self._known
        if not is_known:
            self._count_unknown(token.text, address)
        viewer = self._reviewed(token.text)
        with self._lock:
            if viewer is None:
                self._rejected[digest] = True
                raise UnknownCallerError(NOT_VALID)
            self._viewers[digest] = viewer
            self._known[digest] = True
        return viewer

    def _count_unknown(self, token: str, address: str) -> None:
        account = self._keys.account_of(token)
        if account == "":
            raise UnknownCallerError(NOT_VALID)
        with self._lock:
            if account is None:
                self._count_unsigned(address)
            elif not self._owners.take(owner := owner_of(account)):
                raise TooManyRequestsError(f"new tokens of {owner}", self._owners.wait_seconds(owner))

    def _count_unsigned(self, address: str) -> None:
        if wait := self._addresses.wait_seconds(address):
            raise TooManyRequestsError(f"unknown tokens from {address or 'this address'}", wait)
        if wait := self._unknown.wait_seconds(None):
            raise TooManyRequestsError("unknown tokens from all addresses", wait)
        self._addresses.take(address)
        self._unknown.take(None)

    def _reviewed(self, token: str) -> Viewer | None:
        audience = UI_AUDIENCE if UI_AUDIENCE in claimed_audiences(token) else ""
        user = reviewed_user(self._api, token, audience)
        if user is None or not user.get("username"):
            return None
        extra = user.get("extra") or {}
        return Viewer(
            name=str(user["username"]),
            uid=str(user.get("uid") or ""),
            groups=tuple(map(str, user.get("groups") or ())),
            extra=tuple((str(name), tuple(map(str, extra[name] or ()))) for name in sorted(extra)),
        )
