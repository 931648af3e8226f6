"""The users of the live page in a cluster: who a token belongs to, and which namespaces he may list.

The API server says so, by a TokenReview that is remembered for a short time: so long a token that is revoked still
counts.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache, TTLCache
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import (
    RECURRING_TRAINING_JOBS,
    SUBJECT_ACCESS_REVIEWS,
    TRAINING_RECURRENCES,
    ClusterApi,
    NotFoundError,
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
from wattloop_operator.problem_log import ProblemLog
from wattloop_operator.reporting.interfaces import BearerToken, TooManyRequestsError, UnknownCallerError
from wattloop_operator.reporting.report_limits import Rate, TokenBuckets

logger = logging.getLogger(__name__)

# Of keys that are known; a token that names another one has them read again before.
KEYS_SECONDS = 3600.0
READ_SECONDS = 10.0
UNREAD = "the public keys of service accounts cannot be read, so that their tokens share the limit of unknown tokens"

Verify = Callable[[bytes, bytes], None]
"""Verifies a signature of some bytes; raises InvalidSignature or ValueError."""


class SigningKeys:
    """The public keys by which the API server signs tokens of service accounts, read when needed. Thread-safe.

    A token that one of them has signed is none that somebody made up, so that it is reviewed whatever others send. The
    keys decide nothing else: whether a token counts, the API server says.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = -math.inf
        self._keys: dict[tuple[str, str], Verify] = {}
        self._problems = ProblemLog(logger)

    def account_of(self, token: str) -> str | None:
        """The account that a token names: "" if it names one of the keys that has not signed it, None if it names none.

        Args:
            token: The token, a JSON Web Token or any other text.
        """
        signed, _, signature = token.rpartition(".")
        try:
            head, claims = (json.loads(_decoded(each)) for each in signed.split("."))
            name = str(head["alg"]), str(head["kid"])
            account = str(claims["sub"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        verify = self._key(name)
        if verify is None:
            return None
        try:
            verify(_decoded(signature), signed.encode())
        except (InvalidSignature, ValueError):
            return ""
        return account

    def _key(self, name: tuple[str, str]) -> Verify | None:
        # While one thread reads, what it has read before counts for the others.
        if self._lock.acquire(blocking=not self._keys):
            try:
                age = self._clock() - self._read_at
                if age >= KEYS_SECONDS or (name not in self._keys and age >= READ_SECONDS):
                    self._read()
                    self._read_at = self._clock()
            finally:
                self._lock.release()
        return self._keys.get(name)

    def _read(self) -> None:
        try:
            keys = dict(filter(None, map(_key_of, self._api.token_keys())))
        except (OperationError, RejectedError, NotFoundError) as error:
            self._problems.met(UNREAD, str(error))
        else:
            self._problems.ended(UNREAD)
            self._keys = keys


def _key_of(found: Any) -> tuple[tuple[str, str], Verify] | None:
    """The algorithm and the name of a key of a JSON Web Key Set, and what verifies its signatures. None if unknown."""
    try:
        numbers = {name: int.from_bytes(_decoded(found[name])) for name in ("n", "e", "x", "y") if name in found}
        name = str(found["kid"])
        if found["kty"] == "RSA":
            rsa = RSAPublicNumbers(numbers["e"], numbers["n"]).public_key()
            return ("RS256", name), lambda signature, data: rsa.verify(signature, data, PKCS1v15(), SHA256())
        if found["kty"] == "EC" and found["crv"] == "P-256":
            curve = EllipticCurvePublicNumbers(numbers["x"], numbers["y"], SECP256R1()).public_key()
            return ("ES256", name), lambda signature, data: curve.verify(_der(signature), data, ECDSA(SHA256()))
    except (ValueError, KeyError, TypeError):
        return None
    return None


def _der(signature: bytes) -> bytes:
    """A signature of a JSON Web Token, two numbers of 32 bytes, as the library expects it."""
    if len(signature) != 64:
        raise ValueError("no signature on P-256")
    return encode_dss_signature(int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


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
            if account is not None:
                if not self._owners.take(owner := owner_of(account)):
                    raise TooManyRequestsError(f"new tokens of {owner}", self._owners.wait_seconds(owner))
                return
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


RIGHTS_SECONDS = 30.0
# A refusal counts for so long while no further one is reviewed.
REFUSED_SECONDS = 300.0
# Of all viewers of one owner: reviews, and namespaces that they turn out not to list.
REVIEWS = Rate(per_second=20.0, burst=600.0)
REFUSALS = Rate(per_second=2.0, burst=30.0)
# Of a viewer, a namespace and the kinds.
MAX_RIGHTS = 50_000
LISTED = (RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES)
ALL_NAMESPACES = ""


@dataclass(frozen=True)
class ReadableNamespaces:
    """The namespaces that a viewer may list, as far as it is known.

    Attributes:
        names: Those that he may list.
        complete: Whether it is known of all.
    """

    names: tuple[str, ...]
    complete: bool


class ViewerRights:
    """Whether viewers may list kinds, by SubjectAccessReviews that are remembered for a short time. Thread-safe.

    A viewer who may list all namespaces takes one review a kind. Of others each namespace is reviewed, those first that
    they may list, as far as is known; of the rest a bounded number a second, so that a viewer without a right costs
    the API server, and those who wait behind him, no more in a cluster of many namespaces.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        # When it was reviewed, and whether it is allowed.
        self._known: LRUCache[tuple[Viewer, str, tuple[ResourceType, ...]], tuple[float, bool]] = LRUCache(MAX_RIGHTS)
        self._reviews: TokenBuckets[str] = TokenBuckets(REVIEWS, clock, MAX_VIEWERS)
        self._refusals: TokenBuckets[str] = TokenBuckets(REFUSALS, clock, MAX_VIEWERS)

    def readable(self, viewer: Viewer, namespaces: Iterable[str]) -> ReadableNamespaces:
        """Those of the namespaces that the viewer may list.

        Raises:
            OperationError: The API server does not answer now.
        """
        names = tuple(namespaces)
        everywhere = self.may_list(viewer, ALL_NAMESPACES)
        if everywhere:
            return ReadableNamespaces(names, complete=True)

        def order_of(name: str) -> tuple[bool, bool, float, str]:
            # What he may list first, as far as is known; then his own namespace; then what was reviewed longest ago.
            with self._lock:
                reviewed_at, allowed = self._known.get((viewer, name, LISTED), (-math.inf, False))
            return not allowed, name != viewer.home, reviewed_at, name

        order = sorted(names, key=order_of)
        answers = {name: self.may_list(viewer, name, is_asked_for=False) for name in order}
        return ReadableNamespaces(
            tuple(name for name in names if answers[name]), complete=None not in (everywhere, *answers.values())
        )

    def may_list(
        self, viewer: Viewer, namespace: str, kinds: tuple[ResourceType, ...] = LISTED, *, is_asked_for: bool = True
    ) -> bool | None:
        """Whether the viewer may list all the kinds; None: it is not reviewed now, because too much was.

        Args:
            viewer: The viewer.
            namespace: The namespace; `ALL_NAMESPACES`: in all, or of the cluster.
            kinds: The kinds.
            is_asked_for: Whether the viewer names the namespace; else few are reviewed that he may not list.

        Raises:
            OperationError: The API server does not answer now.
        """
        key, now = (viewer, namespace, kinds), self._clock()
        with self._lock:
            reviewed_at, allowed = self._known.get(key, (-math.inf, False))
            if now - reviewed_at < RIGHTS_SECONDS:
                return allowed
            is_asked_for |= allowed or namespace == viewer.home
            if not is_asked_for and self._refusals.wait_seconds(viewer.owner):
                return False if now - reviewed_at < REFUSED_SECONDS else None
            if not self._reviews.take(viewer.owner, len(kinds)):
                return None
        allowed = all(self._is_allowed(viewer, namespace, each) for each in kinds)
        with self._lock:
            self._known[key] = now, allowed
            if not allowed and not is_asked_for:
                self._refusals.take(viewer.owner)
        return allowed

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
