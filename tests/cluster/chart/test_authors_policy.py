"""The author of a RecurringTrainingJob needs the right to create the workload that the operator starts for it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient

from support.chart.admission import await_refusal, object_refusal
from support.chart.rights import await_right_to_create
from support.chart.training_jobs import JOB, job
from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.waiting import wait_until

OTHER_KIND = {"apiVersion": "other.example.com/v1", "kind": "OtherSet", "spec": {}}


@dataclass(frozen=True)
class Users:
    """Three users of a namespace: one may also create Jobs, one may not, one has Kubernetes' own role edit."""

    namespace: str
    with_jobs: ClusterCommand
    without_jobs: ClusterCommand
    editor: ClusterCommand


@pytest.fixture
def users(
    release: Release,
    namespace: str,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    admin: client.ApiClient,
    service_account_kubeconfig: Callable[[str, str], Path],
) -> Users:
    rules = [{"apiGroups": ["wattloop.dev"], "resources": ["recurringtrainingjobs"], "verbs": ["*"]}]
    jobs = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}]
    kubectl.apply(
        *(role(name, of) for name, of in (("without-jobs", rules), ("with-jobs", rules + jobs))), namespace=namespace
    )
    for name, of in (("without-jobs", "--role=without-jobs"), ("with-jobs", "--role=with-jobs"),
                     ("editor", "--clusterrole=edit")):  # fmt: skip
        kubectl("create", "serviceaccount", name, namespace=namespace)
        kubectl("create", "rolebinding", name, of, f"--serviceaccount={namespace}:{name}", namespace=namespace)
    recurring = "recurringtrainingjobs.wattloop.dev"
    for name, resources in (
        ("without-jobs", [recurring]), ("with-jobs", [recurring, "jobs.batch"]), ("editor", [recurring, "jobs.batch"])
    ):  # fmt: skip
        await_right_to_create(admin, namespace, name, *resources)
    # Waits until the policy is in force: no user may create a workload of this kind.
    await_refusal(lambda: object_refusal(cluster, job(workload=OTHER_KIND), namespace=namespace), "workloadKinds")
    without, having, editor = (
        kubectl.as_user(service_account_kubeconfig(namespace, name)) for name in ("without-jobs", "with-jobs", "editor")
    )
    return Users(namespace, having, without, editor)


def role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}


def refused(user: ClusterCommand, body: dict[str, Any], namespace: str) -> str:
    try:
        user.apply(body, namespace=namespace)
    except CommandError as error:
        return error.stderr
    return ""


def test_an_author_without_the_right_to_create_jobs_creates_no_recurring_training_job(users: Users) -> None:
    message = refused(users.without_jobs, JOB, users.namespace)
    account = f"system:serviceaccount:{users.namespace}:without-jobs"
    assert f"{account} may not create jobs.batch in the namespace {users.namespace}" in message
    assert "(Forbidden)" in message


def test_an_author_with_the_right_to_create_jobs_creates_one(users: Users) -> None:
    assert refused(users.with_jobs, JOB, users.namespace) == ""
    assert refused(users.editor, job(suspend=True), users.namespace) == ""


def test_only_an_author_with_the_right_changes_the_workload(users: Users, kubectl: ClusterCommand) -> None:
    kubectl.apply(JOB, namespace=users.namespace)

    def patch(user: ClusterCommand, *words: str) -> str:
        try:
            return user("patch", "rtj", "digits", "--type=merge", *words, namespace=users.namespace)
        except CommandError as error:
            return error.stderr

    container = '{"name":"train","image":"stolen:1"}'
    template = f'{{"spec":{{"template":{{"spec":{{"template":{{"spec":{{"containers":[{container}]}}}}}}}}}}}}'
    for change in (template, '{"spec":{"runRequest":"now"}}'):
        assert "may not create jobs.batch" in patch(users.without_jobs, f"--patch={change}")
        assert "patched" in patch(users.with_jobs, f"--patch={change}")
    # A change that starts nothing is admitted.
    assert "patched" in patch(users.without_jobs, '--patch={"metadata":{"labels":{"team":"a"}}}')
    assert "deleted" in users.without_jobs("delete", "rtj", "digits", namespace=users.namespace)


def test_a_right_in_another_namespace_does_not_count(users: Users, kubectl: ClusterCommand, namespace: str) -> None:
    kubectl("create", "namespace", f"{namespace}-other")
    binding = ("create", "rolebinding", "elsewhere", "--clusterrole=edit")
    kubectl(*binding, f"--serviceaccount={namespace}:without-jobs", namespace=f"{namespace}-other")
    assert "may not create jobs.batch" in refused(users.without_jobs, JOB, namespace)
    kubectl("delete", "namespace", f"{namespace}-other", "--wait=false")


def test_a_kind_that_the_values_do_not_list_is_rejected_for_all_users(users: Users) -> None:
    message = refused(users.editor, job(workload=OTHER_KIND), users.namespace)
    assert "the operator may not create OtherSet of other.example.com" in message
    assert "operator.workloadKinds" in message


def test_the_operator_writes_its_statuses(users: Users, kubectl: ClusterCommand, operator_kubeconfig: Path) -> None:
    kubectl.apply(JOB, namespace=users.namespace)
    address = ("wattloop.dev", "v1alpha1", users.namespace, "recurringtrainingjobs", "digits")
    with config.new_client_from_config(str(operator_kubeconfig)) as operator:
        written = client.CustomObjectsApi(operator).patch_namespaced_custom_object_status(
            *address, {"status": {"observedGeneration": 1}}
        )
    assert written["status"] == {"observedGeneration": 1}


@pytest.mark.parametrize("name", ["wattloop-authors", "wattloop-report-tokens", "wattloop-agent-socket"])
def test_the_api_server_accepts_a_policys_expressions(
    name: str, release: Release, cluster: DynamicClient, kubectl: ClusterCommand
) -> None:
    def checked(policies: list[dict[str, Any]]) -> dict[str, Any] | None:
        return next((each["status"] for each in policies if "typeChecking" in each.get("status", {})), None)

    status = wait_until(
        cluster,
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
        checked,
        f"the types of {name} to be checked",
        field_selector=f"metadata.name={name}",
    )
    assert status["typeChecking"] == {}
