"""The rights that RBAC grants an account, as the API server answers."""

from __future__ import annotations

import time
from typing import Any

from kubernetes import client

CACHES_CATCH_UP_WITHIN_SECONDS = 60.0
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def granted(admin: client.ApiClient, namespace: str, service_account: str, resource: str, where: str) -> set[str]:
    """The verbs that RBAC grants a service account on a resource in the namespace `where`."""
    kind, _, subresource = resource.partition("/")
    name, _, group = kind.partition(".")

    def may(verb: str) -> bool:
        attributes = client.V1ResourceAttributes(
            group=group, resource=name, subresource=subresource, namespace=where, verb=verb
        )
        spec = client.V1SubjectAccessReviewSpec(
            user=f"system:serviceaccount:{namespace}:{service_account}",
            groups=["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            resource_attributes=attributes,
        )
        review = client.V1SubjectAccessReview(spec=spec)
        return bool(client.AuthorizationV1Api(admin).create_subject_access_review(review).status.allowed)

    return {verb for verb in VERBS if may(verb)}


def granted_soon(expected: set[str], **access: Any) -> set[str]:
    """The granted verbs once the API server's caches include new roles and bindings."""
    deadline = time.monotonic() + CACHES_CATCH_UP_WITHIN_SECONDS
    while (verbs := granted(**access)) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return verbs
