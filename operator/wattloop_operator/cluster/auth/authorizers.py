"""Authorizers of the reporting API: a pod reports for its own recurrence, an agent for its own node.

A pod runs a recurrence by a chain of uids from the pod up to the workload that the operator started. The root is
`status.workloadRef.uid`, which only the operator writes. An owner reference alone proves little: the creator of an
object writes its owner references, and the API server does not verify them. So a pod of a Job must also look as the
Job controller creates it. docs/internals/remaining-risks.md describes the risk and the admission policy against it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import JOBS, PODS, TRAINING_RECURRENCES, ClusterApi, RejectedError
from wattloop_operator.cluster.auth.token_review import Caller, TokenReviews
from wattloop_operator.reporting.interfaces import BearerToken, OwnershipError
from wattloop_operator.workloads.injection import AUDIENCE
from wattloop_operator.workloads.kinds import kind_named
from wattloop_operator.workloads.ownership import JOB, JOB_UID_LABEL, controller_of, group_kind, is_controlled_by

# A caller whose pod is deleted stops reporting; its token stays valid until then.
AUTHORIZED_SECONDS = 60.0
# Shorter: a pod's workload is written into the status soon after the pod has started.
DENIED_SECONDS = 10.0
MAX_AUTHORIZATIONS = 10_000


class Authorizations:
    """Authorizes callers, and remembers the answers, so that a frequent caller costs few requests. Thread-safe.

    The keys are digests: a token must not be readable in this process's memory.

    Args:
        reviews: Identifies the token's pod.
        clock: Monotonic seconds.
    """

    def __init__(self, reviews: TokenReviews, clock: Callable[[], float]) -> None:
        self._reviews = reviews
        self._lock = threading.Lock()
        self._authorized: TTLCache[tuple[bytes, str], str] = TTLCache(MAX_AUTHORIZATIONS, AUTHORIZED_SECONDS, clock)
        self._denied: TTLCache[tuple[bytes, str], str] = TTLCache(MAX_AUTHORIZATIONS, DENIED_SECONDS, clock)

    def known_pod(self, token: BearerToken, subject: str) -> str | None:
        """UID of the token's pod if the token was authorized for this subject recently; otherwise None."""
        with self._lock:
            return self._authorized.get((token.digest, subject))

    def authorize(self, token: BearerToken, subject: str, address: str, check: Callable[[Caller], None]) -> str:
        """Raise an error unless the caller is authorized for a subject; returns the UID of its pod.

        Args:
            token: The caller's token.
            subject: What it reports about.
            address: The peer's address.
            check: Raises OwnershipError for a caller that is not authorized.
        """
        key = token.digest, subject
        with self._lock:
            known, denial = self._authorized.get(key), self._denied.get(key)
        if known is not None:
            return known
        if denial is not None:
            raise OwnershipError(denial)
        try:
            caller = self._reviews.caller_of(token, address)
            check(caller)
        except RejectedError as error:
            raise OperationError(f"the caller's rights cannot be checked: {error}") from error
        except OwnershipError as error:
            with self._lock:
                self._denied[key] = str(error)
            raise
        with self._lock:
            self._authorized[key] = caller.pod_uid
        return caller.pod_uid


class ClusterAuthorizer:
    """Authorizes a token for a recurrence if the token's pod runs that recurrence.

    Implements `wattloop_operator.reporting.interfaces.Authorizer`.

    Args:
        reviews: Identifies the token's pod.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, reviews: TokenReviews, clock: Callable[[], float]) -> None:
        self._api = api
        self._authorizations = Authorizations(reviews, clock)

    def is_authorized(self, token: BearerToken, namespace: str, name: str) -> bool:
        """Whether the caller ran the recurrence a short time ago."""
        return self._authorizations.known_pod(token, f"{namespace}/{name}") is not None

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        """Raise an error unless the caller runs the recurrence; returns the UID of its pod."""
        return self._authorizations.authorize(
            token, f"{namespace}/{name}", address, lambda caller: self._check(caller, namespace, name)
        )

    def _check(self, caller: Caller, namespace: str, name: str) -> None:
        denied = OwnershipError(f"pod {caller.namespace}/{caller.pod} does not run {namespace}/{name}")
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
        self._service_account = service_account
        self._authorizations = Authorizations(reviews, clock)

    def authorize(self, token: BearerToken, node: str, address: str = "") -> None:
        """Raise an error unless the caller is the agent of the node."""
        if not self._service_account:
            raise OwnershipError("this operator accepts no node reports; start it with --agent-service-account")
        self._authorizations.authorize(token, node, address, lambda caller: self._check(caller, node))

    def _check(self, caller: Caller, node: str) -> None:
        account = f"{caller.namespace}/{caller.service_account}"
        if account != self._service_account:
            raise OwnershipError(f"{account} is not the agents' service account, {self._service_account}")
        if not caller.node:
            raise OwnershipError(
                f"the token of pod {caller.namespace}/{caller.pod} names no node; agents need Kubernetes 1.32 or newer "
                "and a projected token to report"
            )
        if caller.node != node:
            raise OwnershipError(f"pod {caller.namespace}/{caller.pod} runs on node {caller.node}, not on {node}")


Body = Mapping[str, Any]
DEFAULT_SERVICE_ACCOUNT = "default"


def workload_uid(recurrence: Body) -> str:
    """Uid of the workload that the operator started for a recurrence; empty if the status has none."""
    return str(((recurrence.get("status") or {}).get("workloadRef") or {}).get("uid") or "")


def runs(api: ClusterApi, pod: Body, recurrence: Body) -> bool:
    """Whether a pod runs a recurrence.

    Args:
        api: The API server.
        pod: The current pod.
        recurrence: The current TrainingRecurrence, in the same namespace.

    Raises:
        RejectedError: The API server rejects the request.
        OperationError: The API server does not answer now.
    """
    reference = (recurrence.get("status") or {}).get("workloadRef") or {}
    root, owner = workload_uid(recurrence), controller_of(pod["metadata"])
    if not root or not owner.get("uid"):
        return False
    if group_kind(str(owner.get("apiVersion")), str(owner.get("kind"))) == JOB:
        job = api.find(JOBS, str(pod["metadata"]["namespace"]), str(owner["name"]))
        if job is None or job["metadata"]["uid"] != owner["uid"] or not _created_by_job_controller(pod, job):
            return False
    namespace = str(pod["metadata"]["namespace"])
    return is_controlled_by(
        pod["metadata"],
        root,
        kind_named(str(reference.get("apiVersion", "")), str(reference.get("kind", ""))).between,
        lambda each: controller_at_server(api, namespace, each),
    )


def running_pod(api: ClusterApi, recurrence: tuple[str, str], pod: str, pod_uid: str) -> Body | None:
    """A pod that runs a recurrence, as the server has it now; None if it is gone or does not run it.

    Args:
        api: The API server.
        recurrence: Namespace and name of the TrainingRecurrence.
        pod: Name of the pod.
        pod_uid: Its UID.

    Raises:
        RejectedError: The API server rejects the request.
        OperationError: The API server does not answer now.
    """
    found, current = api.find(TRAINING_RECURRENCES, *recurrence), api.find(PODS, recurrence[0], pod)
    if found is None or current is None or current["metadata"]["uid"] != pod_uid:
        return None
    return current if runs(api, current, found) else None


def has_report_token(pod: Body) -> bool:
    """Whether a pod gets a token for reports: only the controllers of recurrences' workloads may create such a pod.

    Example:
        >>> token = {"serviceAccountToken": {"audience": AUDIENCE, "path": "token"}}
        >>> volume = {"name": "reports", "projected": {"sources": [token]}}
        >>> has_report_token({"spec": {"volumes": [volume]}}), has_report_token({"spec": {}})
        (True, False)
    """
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    sources = (source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or ())
    return any((each.get("serviceAccountToken") or {}).get("audience") == AUDIENCE for each in sources)


def controller_at_server(api: ClusterApi, namespace: str, owner: Body) -> Body:
    """The owner reference of the controller of an object; empty if the server does not have the object.

    Args:
        api: The API server.
        namespace: Namespace of the object.
        owner: An owner reference to the object.
    """
    resource = api.resource_of(str(owner.get("apiVersion")), str(owner.get("kind")))
    found = api.find(resource, namespace, str(owner.get("name")))
    return {} if found is None or found["metadata"]["uid"] != owner["uid"] else controller_of(found["metadata"])


def _created_by_job_controller(pod: Body, job: Body) -> bool:
    """Whether a pod looks as the Job controller creates the pods of this Job.

    The label matters most: the Job controller counts each pod that has it as one of its own, and
    deletes those that exceed the Job's parallelism.
    """
    metadata, owner = pod["metadata"], job["metadata"]
    template = (job.get("spec") or {}).get("template") or {}
    return (
        (metadata.get("labels") or {}).get(JOB_UID_LABEL) == owner["uid"]
        and str(metadata["name"]).startswith(f"{owner['name']}-")
        and str(metadata.get("creationTimestamp", "")) >= str(owner.get("creationTimestamp", ""))
        and _service_account(pod) == _service_account(template)
    )


def _service_account(template: Body) -> str:
    return str((template.get("spec") or {}).get("serviceAccountName") or DEFAULT_SERVICE_ACCOUNT)
