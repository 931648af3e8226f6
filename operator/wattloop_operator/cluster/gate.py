"""Who may report for which recurrence: the pod that its token names must be one of that recurrence's own."""

from __future__ import annotations

from collections.abc import Callable

from wattloop.errors import CannotError
from wattloop_operator.cluster.admissions import Admissions
from wattloop_operator.cluster.api import ClusterApi, RefusedError
from wattloop_operator.cluster.callers import Caller, caller_of
from wattloop_operator.cluster.ownership import runs
from wattloop_operator.cluster.resources import PODS, TRAINING_RECURRENCES
from wattloop_operator.reporting.seams import ForeignRecurrenceError


class TokenReviewGate:
    """Implements `wattloop_operator.reporting.seams.Gate`.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._admissions = Admissions(clock)

    def admit(self, token: str, namespace: str, name: str) -> None:
        """Let a caller pass."""
        if self._admissions.hold(token, f"{namespace}/{name}"):
            return
        try:
            self._check(caller_of(self._api, token), namespace, name)
        except RefusedError as error:
            raise CannotError(f"the caller's rights cannot be found out: {error}") from error
        self._admissions.keep(token, f"{namespace}/{name}")

    def _check(self, caller: Caller, namespace: str, name: str) -> None:
        foreign = ForeignRecurrenceError(f"pod {caller.namespace}/{caller.pod} does not run {namespace}/{name}")
        if caller.namespace != namespace:
            raise foreign
        recurrence = self._api.find(TRAINING_RECURRENCES, namespace, name)
        pod = self._api.find(PODS, namespace, caller.pod)
        if recurrence is None or pod is None or pod["metadata"]["uid"] != caller.pod_uid:
            raise foreign
        if not runs(self._api, pod, recurrence):
            raise foreign
