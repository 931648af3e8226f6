"""The chart gives the operator what it needs and nothing else: asked of the real API server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from harness.chart import Release
from harness.commands import ClusterCommand, CommandError

ALLOWED = {
    "recurringtrainingjobs.wattloop.dev": {"get", "list", "watch"},
    "recurringtrainingjobs.wattloop.dev/status": {"patch"},
    "recurringtrainingjobs.wattloop.dev/finalizers": {"update"},
    "trainingrecurrences.wattloop.dev": {"get", "list", "watch", "create", "delete"},
    "trainingrecurrences.wattloop.dev/status": {"patch"},
    "trainingrecurrences.wattloop.dev/finalizers": {"update"},
    "frequencyplans.wattloop.dev": set(),
    "gpupowerpolicies.wattloop.dev": {"list"},
    "gpupowerpolicies.wattloop.dev/status": {"patch"},
    "jobs.batch": {"get", "list", "watch", "create", "delete"},
    "jobs.batch/status": set(),
    "pods": {"get", "list", "watch"},
    "pods/exec": set(),
    "pods/log": set(),
    "secrets": set(),
    "configmaps": set(),
    "serviceaccounts": set(),
    "serviceaccounts/token": set(),
    "nodes": {"get", "list"},
    "nodes/status": set(),
    "namespaces": set(),
    "deployments.apps": set(),
    "events": set(),
    "events.events.k8s.io": {"create"},
    "tokenreviews.authentication.k8s.io": {"create"},
    "clusterroles.rbac.authorization.k8s.io": set(),
    "customresourcedefinitions.apiextensions.k8s.io": set(),
}
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


def granted_soon(expected: set[str], **question: Any) -> set[str]:
    """What is granted once the API server's caches have caught up with roles and bindings just made."""
    deadline = time.monotonic() + CACHES_CATCH_UP_WITHIN_SECONDS
    while (verbs := granted(**question)) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    return verbs


@pytest.mark.parametrize("resource", ALLOWED)
def test_in_any_namespace_the_operator_may_do_what_it_needs_and_no_more(
    resource: str, admin: client.ApiClient, release: Release
) -> None:
    expected = ALLOWED[resource]
    verbs = granted_soon(
        expected,
        admin=admin,
        namespace=release.namespace,
        service_account=release.operator_service_account,
        resource=resource,
        where="default",
    )
    assert verbs == expected


@pytest.mark.parametrize(("own", "expected"), [(True, {"get", "create", "update"}), (False, set())])
def test_leases_are_its_own_in_its_own_namespace_alone(
    own: bool, expected: set[str], admin: client.ApiClient, release: Release
) -> None:
    verbs = granted_soon(
        expected,
        admin=admin,
        namespace=release.namespace,
        service_account=release.operator_service_account,
        resource="leases.coordination.k8s.io",
        where=release.namespace if own else "default",
    )
    assert verbs == expected


def test_with_its_own_token_the_operator_reaches_the_api(kubectl: ClusterCommand, operator_kubeconfig: Path) -> None:
    operator = kubectl.as_user(operator_kubeconfig)
    assert operator.json("get", "recurringtrainingjobs", "--all-namespaces")["kind"] == "List"
    with pytest.raises(CommandError, match="secrets is forbidden"):
        operator("get", "secrets", "--all-namespaces")


@pytest.mark.parametrize(
    ("role", "resource", "verbs"),
    [
        ("view", "recurringtrainingjobs.wattloop.dev", {"get", "list", "watch"}),
        ("view", "trainingrecurrences.wattloop.dev", {"get", "list", "watch"}),
        ("view", "frequencyplans.wattloop.dev", {"get", "list", "watch"}),
        ("view", "gpupowerpolicies.wattloop.dev", set()),
        ("edit", "recurringtrainingjobs.wattloop.dev", set(VERBS)),
        ("edit", "frequencyplans.wattloop.dev", set(VERBS)),
        ("edit", "trainingrecurrences.wattloop.dev", {"get", "list", "watch", "delete", "deletecollection"}),
        ("edit", "recurringtrainingjobs.wattloop.dev/status", set()),
        ("edit", "gpupowerpolicies.wattloop.dev", set()),
        ("admin", "recurringtrainingjobs.wattloop.dev", set(VERBS)),
    ],
)
def test_users_of_a_namespace_get_their_share(
    role: str,
    resource: str,
    verbs: set[str],
    kubectl: ClusterCommand,
    admin: client.ApiClient,
    release: Release,
    namespace: str,
) -> None:
    binding = ("create", "rolebinding", "user", f"--clusterrole={role}", f"--serviceaccount={namespace}:default")
    kubectl(*binding, namespace=namespace)
    found = granted_soon(
        verbs, admin=admin, namespace=namespace, service_account="default", resource=resource, where=namespace
    )
    assert found == verbs
