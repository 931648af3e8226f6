"""Authorizers of the reporting API: a pod reports for its own recurrence, an agent for its own node."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import PODS, TRAINING_RECURRENCES, ClusterApi, RejectedError
from wattloop_operator.cluster.auth.pod_ownership import runs, workload_uid
from wattloop_operator.cluster.auth.token_review import Caller, TokenReviews
from wattloop_operator.reporting.interfaces import BearerToken, NodeOwnershipError, RecurrenceOwnershipError

# A caller whose pod is deleted stops reporting; its token stays valid until then.
AUTHORIZED_SECONDS = 60.0
# Shorter: a pod's workload is written into the status soon after the pod has started.
DENIED_SECONDS = 10.0
MAX_AUTHORIZATIONS = 10_000


class AuthorizationCache:
    """Recent authorizations and denials, so that a frequent caller costs few requests. Thread-safe.

    The keys are digests: a token must not be readable in this process's memory.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._authorized: TTLCache[tuple[bytes, str], str] = TTLCache(MAX_AUTHORIZATIONS, AUTHORIZED_SECONDS, clock)
        self._denied: TTLCache[tuple[bytes, str], str] = TTLCache(MAX_AUTHORIZATIONS, DENIED_SECONDS, clock)

    def authorized_pod(self, token: BearerToken, subject: str) -> str | None:
        """UID of the token's pod if the token was authorized for this subject recently; otherwise None."""
        with self._lock:
            return self._authorized.get((token.digest, subject))

    def authorize(self, token: BearerToken, subject: str, pod_uid: str) -> None:
        """Record that this token, of this pod, is authorized for this subject."""
        with self._lock:
            self._authorized[token.digest, subject] = pod_uid

    def denial(self, token: BearerToken, subject: str) -> str | None:
        """Why this token was denied this subject recently; None if it was not."""
        with self._lock:
            return self._denied.get((token.digest, subject))

    def deny(self, token: BearerToken, subject: str, reason: str) -> None:
        """Record why this token is denied this subject."""
        with self._lock:
            self._denied[token.digest, subject] = reason


class ClusterAuthorizer:
    """Authorizes a token for a recurrence if the token's pod runs that recurrence.

    Implements `wattloop_operator.reporting.interfaces.Authorizer`.

    Args:
        api: The API server.
        reviews: Identifies the token's pod.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, reviews: TokenReviews, clock: Callable[[], float]) -> None:
        self._api = api
        self._reviews = reviews
        self._cache = AuthorizationCache(clock)

    def is_authorized(self, token: BearerToken, namespace: str, name: str) -> bool:
        """Whether the caller ran the recurrence a short time ago."""
        return self._cache.authorized_pod(token, f"{namespace}/{name}") is not None

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """Raise an error unless the caller runs the recurrence; returns the UID of its pod."""
        subject = f"{namespace}/{name}"
        known = self._cache.authorized_pod(token, subject)
        if known is not None:
            return known
        denial = self._cache.denial(token, subject)
        if denial is not None:
            raise RecurrenceOwnershipError(denial)
        try:
            caller = self._reviews.caller_of(token, address)
            self._check(caller, namespace, name)
        except RejectedError as error:
            raise OperationError(f"the caller's rights cannot be checked: {error}") from error
        except RecurrenceOwnershipError as error:
            self._cache.deny(token, subject, str(error))
            raise
        self._cache.authorize(token, subject, caller.pod_uid)
        return caller.pod_uid

    def _check(self, caller: Caller, namespace: str, name: str) -> None:
        denied = RecurrenceOwnershipError(f"pod {caller.namespace}/{caller.pod} does not run {namespace}/{name}")
        if caller.namespace != namespace:
            raise denied
        recurrence = self._api.find(TRAINING_RECURRENCES, namespace, name)
        pod = self._api.find(PODS, namespace, caller.pod)
        if recurrence is None or pod is None or pod["metadata"]["uid"] != caller.pod_uid:
            raise denied
        if not workload_uid(recurrence):
            raise OperationError(f"the workload of {namespace}/{name} is not in its status yet; send the report again")
        if not runs(self._api, pod, recurrence):
            raise denied


class ClusterNodeAuthorizer:
    """Authorizes a token for a node if it belongs to an agent's pod on that node.

    Args:
        reviews: Identifies the token's pod.
        clock: Monotonic seconds.
        service_account: Service account of the agents, NAMESPACE/NAME; empty: no agent is
            authorized.
    """

    def __init__(self, reviews: TokenReviews, clock: Callable[[], float], service_account: str) -> None:
        self._reviews = reviews
        self._service_account = service_account
        self._cache = AuthorizationCache(clock)

    def authorize(self, token: BearerToken, node: str, address: str = "") -> None:
        """Raise an error unless the caller is the agent of the node."""
        if not self._service_account:
            raise NodeOwnershipError("this operator accepts no node reports; start it with --agent-service-account")
        if self._cache.authorized_pod(token, node) is not None:
            return
        denial = self._cache.denial(token, node)
        if denial is not None:
            raise NodeOwnershipError(denial)
        try:
            caller = self._reviews.caller_of(token, address)
            self._check(caller, node)
        except NodeOwnershipError as error:
            self._cache.deny(token, node, str(error))
            raise
        self._cache.authorize(token, node, caller.pod_uid)

    def _check(self, caller: Caller, node: str) -> None:
        account = f"{caller.namespace}/{caller.service_account}"
        if account != self._service_account:
            raise NodeOwnershipError(f"{account} is not the agents' service account, {self._service_account}")
        if not caller.node:
            raise NodeOwnershipError(
                f"the token of pod {caller.namespace}/{caller.pod} names no node; agents need Kubernetes 1.32 or newer "
                "and a projected token to report"
            )
        if caller.node != node:
            raise NodeOwnershipError(f"pod {caller.namespace}/{caller.pod} runs on node {caller.node}, not on {node}")
