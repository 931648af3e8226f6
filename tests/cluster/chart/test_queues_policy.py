"""The author of a RecurringTrainingJob in a queue needs the right to use the queue and its priority."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.chart.admission import await_refusal
from support.chart.rights import await_right_to_create
from support.chart.training_jobs import job
from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand, CommandError

GROUP = "kueue.x-k8s.io"
QUEUE, PRIORITY = f"{GROUP}/queue-name", f"{GROUP}/priority-class"


@pytest.fixture
def author(
    release: Release,
    namespace: str,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    admin: client.ApiClient,
    service_account_kubeconfig: Callable[[str, str], Path],
) -> ClusterCommand:
    """A user who may create Jobs and RecurringTrainingJobs and use the queue `team`, with no class of priority."""
    rules = [
        {"apiGroups": ["wattloop.dev"], "resources": ["recurringtrainingjobs"], "verbs": ["*"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
        {"apiGroups": [GROUP], "resources": ["localqueues"], "resourceNames": ["team"], "verbs": ["use"]},
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "author"},
        "rules": rules,
    }
    kubectl.apply(role, namespace=namespace)
    kubectl("create", "serviceaccount", "author", namespace=namespace)
    account = f"--serviceaccount={namespace}:author"
    kubectl("create", "rolebinding", "author", "--role=author", account, namespace=namespace)
    await_right_to_create(admin, namespace, "author", "recurringtrainingjobs.wattloop.dev", "jobs.batch")
    user = kubectl.as_user(service_account_kubeconfig(namespace, "author"))
    await_refusal(lambda: refused(user, namespace, **{QUEUE: "other"}), "may not use the LocalQueue other")
    return user


def queued(**labels: str) -> dict[str, Any]:
    made = job()
    made["spec"]["template"]["metadata"] = {"labels": {"app": "digits", **labels}}
    return made


def refused(user: ClusterCommand, namespace: str, **labels: str) -> str:
    try:
        user.apply(queued(**labels), namespace=namespace, dry_run=True)
    except CommandError as error:
        return error.stderr
    return ""


def test_an_author_gets_only_into_the_queues_and_priorities_that_a_role_grants(
    author: ClusterCommand, namespace: str
) -> None:
    assert refused(author, namespace, **{QUEUE: "team"}) == ""
    message = refused(author, namespace, **{QUEUE: "team", PRIORITY: "urgent"})
    account = f"system:serviceaccount:{namespace}:author"
    assert f"spec.template.metadata.labels: {account} may not use the WorkloadPriorityClass urgent" in message
    assert "may not use the LocalQueue other" in refused(author, namespace, **{QUEUE: "other"})
    assert refused(author, namespace) == ""


def test_a_queue_of_somebody_else_is_not_used_by_a_change_of_another_field(
    author: ClusterCommand, kubectl: ClusterCommand, namespace: str
) -> None:
    kubectl.apply(queued(**{QUEUE: "other"}), namespace=namespace)
    run = ("patch", "rtj", "digits", "--type=merge", '--patch={"spec":{"runRequest":"now"}}')
    with pytest.raises(CommandError, match="may not use the LocalQueue other"):
        author(*run, namespace=namespace)
    assert "patched" in kubectl(*run, namespace=namespace)
