"""Identifies the pod that a token belongs to, by a TokenReview of the API server.

The API server verifies the signature, the expiry and the audience.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import TOKEN_REVIEWS, Body, ClusterApi, RejectedError
from wattloop_operator.reporting.interfaces import BearerToken, UnknownCallerError
from wattloop_operator.workloads.injection import AUDIENCE, TOKEN_SECONDS

POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
NODE_NAME = "authentication.kubernetes.io/node-name"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
MAX_TOKEN_CHARACTERS = 8192
# Only a change of the cluster can make a rejected token valid, so a caller that retries is answered
# from the cache.
REJECTED_SECONDS = 10.0
MAX_CACHED_TOKENS = 20_000


@dataclass(frozen=True)
class Caller:
    """The pod that a token belongs to.

    Attributes:
        node: Its node; empty if the server does not report it (Kubernetes before 1.32).
    """

    namespace: str
    service_account: str
    pod: str
    pod_uid: str
    node: str


class TokenReviews:
    """Reviews tokens with as few requests to the API server as possible. Thread-safe.

    A token that cannot be a service account's token for Wattloop's audience is rejected without a
    review, and a rejected token is rejected again for `REJECTED_SECONDS`. The limit of reviews does
    not apply to tokens that were valid in the last hour, so other callers cannot exhaust it for
    them.

    Args:
        clock: Monotonic seconds.
        count_review: Called with the peer's address before the review of a token that is not known
            as valid; raises TooManyRequestsError beyond the limit.
    """

    def __init__(
        self, api: ClusterApi, clock: Callable[[], float], count_review: Callable[[str], None] = lambda _: None
    ) -> None:
        self._api = api
        self._count_review = count_review
        self._lock = threading.Lock()
        self._rejected: TTLCache[bytes, str] = TTLCache(MAX_CACHED_TOKENS, REJECTED_SECONDS, clock)
        self._valid: TTLCache[bytes, bool] = TTLCache(MAX_CACHED_TOKENS, TOKEN_SECONDS, clock)

    def caller_of(self, token: BearerToken, address: str = "") -> Caller:
        """The pod that a token belongs to.

        Raises:
            UnknownCallerError: It is not a valid token of this cluster for Wattloop's audience, or
                of no pod.
            TooManyRequestsError: Too many unknown tokens were reviewed recently.
            OperationError: The API server does not answer now.
        """
        if len(token.text) > MAX_TOKEN_CHARACTERS or AUDIENCE not in claimed_audiences(token.text):
            raise UnknownCallerError(f"send a token with the audience {AUDIENCE}: Authorization: Bearer …")
        with self._lock:
            rejection = self._rejected.get(token.digest)
            known = token.digest in self._valid
        if rejection is not None:
            raise UnknownCallerError(rejection)
        if not known:
            self._count_review(address)
        try:
            caller = self._review(token.text)
        except UnknownCallerError as error:
            with self._lock:
                self._rejected[token.digest] = str(error)
            raise
        with self._lock:
            self._valid[token.digest] = True
        return caller

    def _review(self, token: str) -> Caller:
        user = reviewed_user(self._api, token, AUDIENCE)
        if user is None:
            raise UnknownCallerError(f"the token is not one of this cluster with the audience {AUDIENCE}")
        username = str(user.get("username", ""))
        extra = user.get("extra") or {}
        pod, uid = _single(extra, POD_NAME), _single(extra, POD_UID)
        if not username.startswith(SERVICE_ACCOUNT_PREFIX) or not pod or not uid:
            raise UnknownCallerError("the token belongs to no pod; use the one that Wattloop mounts")
        namespace, _, account = username.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
        return Caller(namespace, account, pod, uid, _single(extra, NODE_NAME))


def reviewed_user(api: ClusterApi, token: str, audience: str = "") -> Body | None:
    """The user of a token, as the API server's TokenReview says; None if it is not valid for the audience.

    Args:
        api: The API server.
        token: The token.
        audience: The audience; empty: that of the API server.

    Raises:
        OperationError: The API server does not answer now, or does not review tokens for this process.
    """
    spec = {"token": token} | ({"audiences": [audience]} if audience else {})
    try:
        status = api.review(TOKEN_REVIEWS, spec)
    except RejectedError as error:
        raise OperationError(f"the caller's token cannot be reviewed: {error}") from error
    # A server that does not know audiences would accept any of its tokens, so it must confirm the audience.
    is_for_audience = not audience or audience in (status.get("audiences") or ())
    return dict(status.get("user") or {}) if status.get("authenticated") and is_for_audience else None


def claimed_audiences(token: str) -> tuple[str, ...]:
    """The audiences that a JSON Web Token claims; none if it is not such a token.

    The signature is not verified: a claim is a reason to reject a token, never to accept it.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return ()
    try:
        claims = json.loads(base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        return ()
    audiences = claims.get("aud") if isinstance(claims, dict) else None
    if isinstance(audiences, str):
        return (audiences,)
    return tuple(each for each in audiences if isinstance(each, str)) if isinstance(audiences, list) else ()


def _single(extra: Mapping[str, Any], name: str) -> str:
    values = list(extra.get(name) or ())
    return str(values[0]) if len(values) == 1 else ""
