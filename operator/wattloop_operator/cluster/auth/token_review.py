"""Whose a token is: shown to the API server, which knows whether it is its own, still good, and for our audience."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import TOKEN_REVIEWS, ClusterApi, RejectedError
from wattloop_operator.cluster.timed_cache import TimedCache
from wattloop_operator.reporting.interfaces import BearerToken, UnknownCallerError
from wattloop_operator.workloads.injection import AUDIENCE, TOKEN_SECONDS

POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
NODE_NAME = "authentication.kubernetes.io/node-name"
SERVICE_ACCOUNT = "system:serviceaccount:"
MAX_TOKEN_CHARACTERS = 8192
# A token that was refused may become good only by a change of the cluster; a caller that retries is answered from here.
REFUSED_SECONDS = 10.0
MAX_REMEMBERED_TOKENS = 20_000


@dataclass(frozen=True)
class Caller:
    """The pod that a token was given to.

    Attributes:
        namespace: Its namespace.
        service_account: The service account that it runs as.
        pod: Its name.
        pod_uid: Its uid.
        node: The node that it runs on; empty where the server does not say (Kubernetes before 1.32).
    """

    namespace: str
    service_account: str
    pod: str
    pod_uid: str
    node: str


class TokenReviews:
    """Asks the API server whose tokens are, as seldom as it can. Safe to use from several threads.

    A token that cannot be a service account's token for our audience is refused without a review, and a refused token
    is refused again for `REFUSED_SECONDS`. Tokens that were good in the last hour are reviewed whatever others send.

    Args:
        api: The API server.
        clock: Monotonic seconds.
        count_review: Called with the peer's address before a token is reviewed that was not good before; it raises
            TooManyRequestsError beyond the limit.
    """

    def __init__(
        self, api: ClusterApi, clock: Callable[[], float], count_review: Callable[[str], None] = lambda _: None
    ) -> None:
        self._api = api
        self._count_review = count_review
        self._refused: TimedCache[bytes, str] = TimedCache(clock, seconds=REFUSED_SECONDS, most=MAX_REMEMBERED_TOKENS)
        self._good: TimedCache[bytes, bool] = TimedCache(clock, seconds=TOKEN_SECONDS, most=MAX_REMEMBERED_TOKENS)

    def caller_of(self, token: BearerToken, address: str = "") -> Caller:
        """The pod that a token was given to.

        Args:
            token: What the caller showed.
            address: The peer's address.

        Raises:
            UnknownCallerError: It is no token of this cluster for our audience, or was given to no pod.
            TooManyRequestsError: Too many unknown tokens were reviewed a moment ago.
            OperationError: It could not be found out now.
        """
        if len(token.text) > MAX_TOKEN_CHARACTERS or AUDIENCE not in claimed_audiences(token.text):
            raise UnknownCallerError(f"send a token with the audience {AUDIENCE}: Authorization: Bearer …")
        refused = self._refused.get(token.digest)
        if refused is not None:
            raise UnknownCallerError(refused)
        if self._good.get(token.digest) is None:
            self._count_review(address)
        try:
            caller = self._review(token.text)
        except UnknownCallerError as refusal:
            self._refused.keep(token.digest, str(refusal))
            raise
        self._good.keep(token.digest, True)
        return caller

    def _review(self, token: str) -> Caller:
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "metadata": {},
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            status = self._api.review(TOKEN_REVIEWS, body).get("status") or {}
        except RejectedError as error:
            raise OperationError(f"the caller's token cannot be reviewed: {error}") from error
        # A server that knows no audiences would accept any token of its own: it must name ours.
        if not status.get("authenticated") or AUDIENCE not in (status.get("audiences") or ()):
            raise UnknownCallerError(f"the token is not one of this cluster with the audience {AUDIENCE}")
        user = status.get("user") or {}
        username = str(user.get("username", ""))
        extra = user.get("extra") or {}
        pod, uid = _only(extra, POD_NAME), _only(extra, POD_UID)
        if not username.startswith(SERVICE_ACCOUNT) or not pod or not uid:
            raise UnknownCallerError("the token was given to no pod; use the one mounted by Wattloop")
        namespace, _, account = username.removeprefix(SERVICE_ACCOUNT).partition(":")
        return Caller(namespace, account, pod, uid, _only(extra, NODE_NAME))


def claimed_audiences(token: str) -> tuple[str, ...]:
    """The audiences that a JSON Web Token claims for itself; none where it is no such token.

    No signature is checked, so a claim is a reason to refuse a token and never one to accept it.
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


def _only(extra: Mapping[str, Any], name: str) -> str:
    values = list(extra.get(name) or ())
    return str(values[0]) if len(values) == 1 else ""
