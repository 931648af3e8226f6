"""The chart gives the operator the rights that it needs and no others, as a real API server confirms."""

from pathlib import Path

import pytest
from kubernetes import client

from support.chart.rights import VERBS, granted_soon
from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand, CommandError

ALLOWED = {
    "recurringtrainingjobs.wattloop.dev": {"get", "list", "watch", "patch"},
    "recurringtrainingjobs.wattloop.dev/status": {"patch"},
    "recurringtrainingjobs.wattloop.dev/finalizers": {"update"},
    "trainingrecurrences.wattloop.dev": {"get", "list", "watch", "create", "patch", "delete"},
    "trainingrecurrences.wattloop.dev/status": {"patch"},
    "trainingrecurrences.wattloop.dev/finalizers": {"update"},
    "frequencyplans.wattloop.dev": {"get", "list", "watch", "create", "delete"},
    "frequencyplans.wattloop.dev/status": {"patch"},
    "gpupowerpolicies.wattloop.dev": {"get", "list", "watch"},
    "gpupowerpolicies.wattloop.dev/status": {"patch"},
    "gpunodes.wattloop.dev": {"create"},
    "gpunodes.wattloop.dev/status": {"patch"},
    "jobs.batch": {"get", "list", "watch", "create", "delete"},
    "jobs.batch/status": set(),
    "workloads.kueue.x-k8s.io": {"list"},
    "localqueues.kueue.x-k8s.io": set(),
    "clustertrainingruntimes.trainer.kubeflow.org": {"get"},
    "trainingruntimes.trainer.kubeflow.org": {"get"},
    "pods": {"get", "list", "watch"},
    "pods/exec": set(),
    "services": {"get", "create"},
    "pods/log": set(),
    "secrets": set(),
    "configmaps": set(),
    "serviceaccounts": set(),
    "serviceaccounts/token": set(),
    "nodes": {"get", "list"},
    "nodes/status": set(),
    "namespaces": set(),
    "deployments.apps": set(),
    "events": {"list"},
    "events.events.k8s.io": {"create"},
    "tokenreviews.authentication.k8s.io": {"create"},
    "clusterroles.rbac.authorization.k8s.io": set(),
    "customresourcedefinitions.apiextensions.k8s.io": set(),
}


@pytest.mark.parametrize("resource", ALLOWED)
def test_in_any_namespace_the_operator_has_exactly_the_rights_that_it_needs(
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
def test_the_operator_has_leases_only_in_its_own_namespace(
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
def test_the_roles_of_a_namespace_include_its_training_jobs(
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
