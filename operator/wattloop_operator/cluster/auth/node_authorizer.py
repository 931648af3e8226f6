"""Who may speak of a node: an agent's pod, by its service account, and of the node alone that it runs on."""

from __future__ import annotations

from collections.abc import Callable

from wattloop_operator.cluster.auth.authorization_cache import AuthorizationCache
from wattloop_operator.cluster.auth.token_review import Caller, TokenReviews
from wattloop_operator.reporting.interfaces import BearerToken, NodeOwnershipError


class AgentTokenAuthorizer:
    """Implements `wattloop_operator.reporting.interfaces.NodeAuthorizer`.

    Args:
        reviews: Knows whose tokens are.
        clock: Monotonic seconds.
        service_account: What agents run as, NAMESPACE/NAME; empty: no agent is admitted.
    """

    def __init__(self, reviews: TokenReviews, clock: Callable[[], float], service_account: str) -> None:
        self._reviews = reviews
        self._service_account = service_account
        self._admissions = AuthorizationCache(clock)

    def authorize(self, token: BearerToken, node: str, address: str = "") -> None:
        """Let an agent pass."""
        if not self._service_account:
            raise NodeOwnershipError("this operator takes no reports of nodes; start it with --agent-service-account")
        if self._admissions.hold(token, node):
            return
        refusal = self._admissions.refusal(token, node)
        if refusal is not None:
            raise NodeOwnershipError(refusal)
        try:
            self._check(self._reviews.caller_of(token, address), node)
        except NodeOwnershipError as error:
            self._admissions.refuse(token, node, str(error))
            raise
        self._admissions.keep(token, node)

    def _check(self, caller: Caller, node: str) -> None:
        account = f"{caller.namespace}/{caller.service_account}"
        if account != self._service_account:
            raise NodeOwnershipError(f"{account} is not the agents' service account, {self._service_account}")
        if not caller.node:
            raise NodeOwnershipError(
                f"the token of pod {caller.namespace}/{caller.pod} names no node; agents report on Kubernetes 1.32 and "
                "newer, with a projected token"
            )
        if caller.node != node:
            raise NodeOwnershipError(f"pod {caller.namespace}/{caller.pod} runs on node {caller.node}, not on {node}")
