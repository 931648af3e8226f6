"""Who may report for which recurrence: the pod that its token names must be one of that recurrence's own."""

from __future__ import annotations

from collections.abc import Callable

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import ClusterApi, RefusedError
from wattloop_operator.cluster.auth.authorization_cache import AuthorizationCache
from wattloop_operator.cluster.auth.pod_ownership import runs, workload_uid
from wattloop_operator.cluster.auth.token_review import Caller, TokenReviews
from wattloop_operator.cluster.resources import PODS, TRAINING_RECURRENCES
from wattloop_operator.reporting.interfaces import BearerToken, RecurrenceOwnershipError


class TokenReviewAuthorizer:
    """Implements `wattloop_operator.reporting.interfaces.Authorizer`.

    Args:
        api: The API server.
        reviews: Knows whose tokens are.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, reviews: TokenReviews, clock: Callable[[], float]) -> None:
        self._api = api
        self._reviews = reviews
        self._admissions = AuthorizationCache(clock)

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> None:
        """Let a caller pass."""
        subject = f"{namespace}/{name}"
        if self._admissions.hold(token, subject):
            return
        refusal = self._admissions.refusal(token, subject)
        if refusal is not None:
            raise RecurrenceOwnershipError(refusal)
        try:
            self._check(self._reviews.caller_of(token, address), namespace, name)
        except RefusedError as error:
            raise OperationError(f"the caller's rights cannot be found out: {error}") from error
        except RecurrenceOwnershipError as error:
            self._admissions.refuse(token, subject, str(error))
            raise
        self._admissions.keep(token, subject)

    def _check(self, caller: Caller, namespace: str, name: str) -> None:
        foreign = RecurrenceOwnershipError(f"pod {caller.namespace}/{caller.pod} does not run {namespace}/{name}")
        if caller.namespace != namespace:
            raise foreign
        recurrence = self._api.find(TRAINING_RECURRENCES, namespace, name)
        pod = self._api.find(PODS, namespace, caller.pod)
        if recurrence is None or pod is None or pod["metadata"]["uid"] != caller.pod_uid:
            raise foreign
        if not workload_uid(recurrence):
            raise OperationError(f"the workload of {namespace}/{name} is not written down yet; send the report again")
        if not runs(self._api, pod, recurrence):
            raise foreign
