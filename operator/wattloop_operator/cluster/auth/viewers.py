"""The users of the live page in a cluster: who a token belongs to, and which namespaces its user may list.

Both are the API server's answers, by TokenReview and SubjectAccessReview, each remembered for a short time: so long a
right that is withdrawn, or a token that is revoked, still counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import (
    RECURRING_TRAINING_JOBS,
    SUBJECT_ACCESS_REVIEWS,
    TRAINING_RECURRENCES,
    ClusterApi,
    RejectedError,
    ResourceType,
)
from wattloop_operator.cluster.auth.token_review import (
    MAX_TOKEN_CHARACTERS,
    REJECTED_SECONDS,
    SERVICE_ACCOUNT_PREFIX,
    claimed_audiences,
    reviewed_user,
)
from wattloop_operator.reporting.interfaces import BearerToken, TooManyRequestsError, UnknownCallerError
from wattloop_operator.reporting.rate_limiters import Rate, TokenBuckets

# A token with it is of no use at the API server, if somebody steals it.
UI_AUDIENCE = "wattloop.dev/ui"
REVIEWED_SECONDS = 60.0
RIGHTS_SECONDS = 30.0
MAX_VIEWERS = 1_000
# Tokens that were valid in the last hour are reviewed without a limit, so that nobody uses it up for their users.
KNOWN_SECONDS = 3600.0
MAX_KNOWN = 20_000
UNKNOWN_TOKENS = Rate(per_second=20.0, burst=400.0)
# Of the peer's address, so that one caller leaves reviews to others.
UNKNOWN_TOKENS_OF_ADDRESS = Rate(per_second=2.0, burst=40.0)
MAX_ADDRESSES = 10_000
# Of a viewer, a namespace and the kinds.
MAX_RIGHTS = 50_000
LISTED = (RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES)
ALL_NAMESPACES = ""
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
        if not self.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return self.name
        return self.name.rpartition(":")[0]


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
            if digest not in self._known:
                self._count_unknown(address)
        viewer = self._reviewed(token.text)
        with self._lock:
            if viewer is None:
                self._rejected[digest] = True
                raise UnknownCallerError(NOT_VALID)
            self._viewers[digest] = viewer
            self._known[digest] = True
        return viewer

    def _count_unknown(self, address: str) -> None:
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


class ViewerRights:
    """Whether viewers may list kinds. Thread-safe.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._allowed: TTLCache[tuple[Viewer, str, tuple[ResourceType, ...]], bool] = TTLCache(
            MAX_RIGHTS, RIGHTS_SECONDS, clock
        )

    def readable(self, viewer: Viewer, namespaces: Iterable[str]) -> tuple[str, ...]:
        """Those of the namespaces that the viewer may list.

        Raises:
            OperationError: The API server does not answer now.
        """
        if self.may_list(viewer, ALL_NAMESPACES):
            return tuple(namespaces)
        return tuple(each for each in namespaces if self.may_list(viewer, each))

    def may_list(self, viewer: Viewer, namespace: str, kinds: tuple[ResourceType, ...] = LISTED) -> bool:
        """Whether the viewer may list all the kinds in a namespace; `ALL_NAMESPACES`: in all, or of the cluster."""
        key = viewer, namespace, kinds
        with self._lock:
            known = self._allowed.get(key)
        if known is None:
            known = all(self._is_allowed(viewer, namespace, each) for each in kinds)
            with self._lock:
                self._allowed[key] = known
        return known

    def _is_allowed(self, viewer: Viewer, namespace: str, resource: ResourceType) -> bool:
        spec = {
            "user": viewer.name,
            "uid": viewer.uid,
            "groups": list(viewer.groups),
            "extra": {name: list(values) for name, values in viewer.extra},
            "resourceAttributes": listing(resource, namespace),
        }
        try:
            return self._api.review(SUBJECT_ACCESS_REVIEWS, spec).get("allowed") is True
        except RejectedError as error:
            raise OperationError(f"the rights of viewers cannot be reviewed: {error}") from error


def listing(resource: ResourceType, namespace: str) -> dict[str, str]:
    """What a review of rights asks about: to list a kind in a namespace; `ALL_NAMESPACES`: in all of them."""
    group, _, _ = resource.api_version.rpartition("/")
    return {"group": group, "resource": resource.plural, "verb": "list", "namespace": namespace}
