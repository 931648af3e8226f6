"""Who may report for which recurrence: the pod that its token names must be one of that recurrence's own."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.errors import CannotError
from wattloop_operator.cluster.api import ClusterApi, RefusedError
from wattloop_operator.cluster.resources import JOBS, PODS, TOKEN_REVIEWS, TRAINING_RECURRENCES
from wattloop_operator.reporting.seams import ForeignRecurrenceError, UnknownCallerError
from wattloop_operator.workloads.ownership import controller_uid
from wattloop_operator.workloads.pod_template import AUDIENCE

POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
SERVICE_ACCOUNT = "system:serviceaccount:"
LARGEST_TOKEN_CHARACTERS = 8192
# A pod that is gone reports no more; until then its token is good.
TRUSTED_SECONDS = 60.0
MOST_ADMITTED = 10_000


@dataclass(frozen=True)
class Caller:
    """The pod that a token was given to."""

    namespace: str
    pod: str
    pod_uid: str


class TokenReviewGate:
    """Implements `wattloop_operator.reporting.seams.Gate`.

    A token is shown to the API server, which knows whether it is its own, still good, and for our audience; it also
    names the pod. The pod's owner must be the recurrence's workload, or a Job that belongs to it.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._admitted: OrderedDict[tuple[bytes, str, str], float] = OrderedDict()

    def admit(self, token: str, namespace: str, name: str) -> None:
        """Let a caller pass."""
        if not token or len(token) > LARGEST_TOKEN_CHARACTERS:
            raise UnknownCallerError(f"send a token with the audience {AUDIENCE}: Authorization: Bearer …")
        # Tokens themselves are not kept, for they would open the gate to whoever reads this process's memory.
        key = (hashlib.sha256(token.encode()).digest(), namespace, name)
        if self._was_admitted(key):
            return
        try:
            self._check(self._caller(token), namespace, name)
        except RefusedError as error:
            raise CannotError(f"the caller's rights cannot be found out: {error}") from error
        with self._lock:
            self._admitted[key] = self._clock()
            while len(self._admitted) > MOST_ADMITTED:
                self._admitted.popitem(last=False)

    def _was_admitted(self, key: tuple[bytes, str, str]) -> bool:
        with self._lock:
            at = self._admitted.get(key)
        return at is not None and self._clock() - at < TRUSTED_SECONDS

    def _caller(self, token: str) -> Caller:
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "metadata": {},
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        status = self._api.review(TOKEN_REVIEWS, body).get("status") or {}
        # A server that knows no audiences would accept any token of its own: it must name ours.
        if not status.get("authenticated") or AUDIENCE not in (status.get("audiences") or ()):
            raise UnknownCallerError(f"the token is not one of this cluster with the audience {AUDIENCE}")
        user = status.get("user") or {}
        username = str(user.get("username", ""))
        extra = user.get("extra") or {}
        pod, uid = _only(extra, POD_NAME), _only(extra, POD_UID)
        if not username.startswith(SERVICE_ACCOUNT) or not pod or not uid:
            raise UnknownCallerError("the token was given to no pod; use the one mounted by Wattloop")
        return Caller(username.removeprefix(SERVICE_ACCOUNT).partition(":")[0], pod, uid)

    def _check(self, caller: Caller, namespace: str, name: str) -> None:
        foreign = ForeignRecurrenceError(f"pod {caller.namespace}/{caller.pod} does not run {namespace}/{name}")
        if caller.namespace != namespace:
            raise foreign
        recurrence = self._api.find(TRAINING_RECURRENCES, namespace, name)
        pod = self._api.find(PODS, namespace, caller.pod)
        if recurrence is None or pod is None or pod["metadata"]["uid"] != caller.pod_uid:
            raise foreign
        recurrence_uid = str(recurrence["metadata"]["uid"])
        workload = ((recurrence.get("status") or {}).get("workloadRef") or {}).get("uid")
        owner = controller_uid(pod["metadata"])
        if not owner or (owner != workload and not self._belongs(pod, owner, {recurrence_uid, workload})):
            raise foreign

    def _belongs(self, pod: Mapping[str, Any], owner: str, owners: set[str | None]) -> bool:
        """Whether the pod's Job belongs to the recurrence, or to its workload of another kind (a JobSet has Jobs)."""
        references = pod["metadata"].get("ownerReferences") or ()
        controller: Mapping[str, Any] = next((each for each in references if each.get("controller")), {})
        if controller.get("kind") != JOBS.kind:
            return False
        job = self._api.find(JOBS, str(pod["metadata"]["namespace"]), str(controller["name"]))
        return job is not None and job["metadata"]["uid"] == owner and controller_uid(job["metadata"]) in owners


def _only(extra: Mapping[str, Any], name: str) -> str:
    values = list(extra.get(name) or ())
    return str(values[0]) if len(values) == 1 else ""
