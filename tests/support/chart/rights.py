"""The rights that RBAC grants an account, as the API server answers.

A role, a binding or an aggregated role is in effect a moment after it has been stored.
"""

import time
from typing import Any

from kubernetes import client

from support.control_plane.waiting import LONGEST_WAIT_SECONDS

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def may(admin: client.ApiClient, namespace: str, service_account: str, verb: str, resource: str, where: str) -> bool:
    """Whether RBAC grants a service account a verb on a resource (`jobs.batch`) in the namespace `where`."""
    kind, _, subresource = resource.partition("/")
    name, _, group = kind.partition(".")
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


def granted(admin: client.ApiClient, namespace: str, service_account: str, resource: str, where: str) -> set[str]:
    """The verbs that RBAC grants a service account on a resource in the namespace `where`."""
    return {verb for verb in VERBS if may(admin, namespace, service_account, verb, resource, where)}


def granted_soon(expected: set[str], **access: Any) -> set[str]:
    """The granted verbs once the API server's caches include new roles and bindings."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while (verbs := granted(**access)) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return verbs


def await_right_to_create(admin: client.ApiClient, namespace: str, service_account: str, *resources: str) -> None:
    """Wait until a service account may create these in its namespace."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    for resource in resources:
        while not may(admin, namespace, service_account, "create", resource, namespace):
            assert time.monotonic() < deadline, f"{namespace}/{service_account} may not create {resource}"
            time.sleep(0.02)
