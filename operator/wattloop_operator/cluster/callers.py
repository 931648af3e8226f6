"""Whose a token is: shown to the API server, which knows whether it is its own, still good, and for our audience."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.errors import CannotError
from wattloop_operator.cluster.api import ClusterApi, RefusedError
from wattloop_operator.cluster.resources import TOKEN_REVIEWS
from wattloop_operator.reporting.seams import UnknownCallerError
from wattloop_operator.workloads.pod_template import AUDIENCE

POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
NODE_NAME = "authentication.kubernetes.io/node-name"
SERVICE_ACCOUNT = "system:serviceaccount:"
LARGEST_TOKEN_CHARACTERS = 8192


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


def caller_of(api: ClusterApi, token: str) -> Caller:
    """The pod that a token was given to.

    Args:
        api: The API server.
        token: What the caller showed.

    Raises:
        UnknownCallerError: It is no token of this cluster for our audience, or was given to no pod.
        CannotError: It could not be found out now.
    """
    if not token or len(token) > LARGEST_TOKEN_CHARACTERS:
        raise UnknownCallerError(f"send a token with the audience {AUDIENCE}: Authorization: Bearer …")
    body = {
        "apiVersion": TOKEN_REVIEWS.api_version,
        "kind": TOKEN_REVIEWS.kind,
        "metadata": {},
        "spec": {"token": token, "audiences": [AUDIENCE]},
    }
    try:
        status = api.review(TOKEN_REVIEWS, body).get("status") or {}
    except RefusedError as error:
        raise CannotError(f"the caller's token cannot be reviewed: {error}") from error
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


def _only(extra: Mapping[str, Any], name: str) -> str:
    values = list(extra.get(name) or ())
    return str(values[0]) if len(values) == 1 else ""
