"""Only pods of recurrences get a report token: no user can create such a pod, or request such a token."""

import copy
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient

from support.chart.admission import await_refusal, pod_refusal, refusal
from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand
from support.control_plane.kubelet import Kubelet
from support.control_plane.waiting import LONGEST_WAIT_SECONDS

AUDIENCE = "wattloop.dev/report"
MESSAGE = "may not create a token with the audience wattloop.dev/report"


def pod_spec(audience: str) -> dict[str, Any]:
    token = {"serviceAccountToken": {"audience": audience, "path": "token"}}
    volume = {"name": "token", "projected": {"sources": [{"configMap": {"name": "other", "optional": True}}, token]}}
    return {"restartPolicy": "Never", "containers": [{"name": "train", "image": "x:1"}], "volumes": [volume]}


def pod(audience: str = AUDIENCE) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": pod_spec(audience)}


def job(audience: str = AUDIENCE, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe", **metadata},
        "spec": {"template": {"spec": pod_spec(audience)}},
    }


@pytest.fixture
def editor(
    release: Release, namespace: str, kubectl: ClusterCommand, service_account_kubeconfig: Callable[[str, str], Path]
) -> Iterator[client.ApiClient]:
    """A user with Kubernetes' own role edit in the namespace."""
    kubectl("create", "serviceaccount", "editor", namespace=namespace)
    account = f"--serviceaccount={namespace}:editor"
    kubectl("create", "rolebinding", "editor", "--clusterrole=edit", account, namespace=namespace)
    with config.new_client_from_config(str(service_account_kubeconfig(namespace, "editor"))) as api_client:
        core = client.CoreV1Api(api_client)
        await_refusal(lambda: pod_refusal(core, namespace, pod()), MESSAGE)
        yield api_client


def token_refusal(core: client.CoreV1Api, namespace: str, audience: str, pod: dict[str, Any] | None = None) -> str:
    reference = None
    if pod is not None:
        metadata = pod["metadata"]
        reference = client.V1BoundObjectReference(
            api_version="v1", kind="Pod", name=metadata["name"], uid=metadata["uid"]
        )
    spec = client.V1TokenRequestSpec(audiences=[audience], bound_object_ref=reference)
    body = client.AuthenticationV1TokenRequest(spec=spec)
    return refusal(lambda: core.create_namespaced_service_account_token("default", namespace, body))


def test_a_user_cannot_create_a_pod_with_a_report_token(editor: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(editor)
    assert MESSAGE in pod_refusal(core, namespace, pod())
    assert pod_refusal(core, namespace, pod("another.example")) == ""
    without = pod()
    del without["spec"]["volumes"]
    # A text that only mentions the audience is not a token.
    without["spec"]["containers"][0]["env"] = [{"name": "A", "value": f"audience: {AUDIENCE}"}]
    assert pod_refusal(core, namespace, without) == ""


def test_a_user_cannot_create_a_job_whose_pods_get_a_report_token(editor: client.ApiClient, namespace: str) -> None:
    batch = client.BatchV1Api(editor)

    def job_refusal(body: dict[str, Any]) -> str:
        return refusal(lambda: batch.create_namespaced_job(namespace, body, dry_run="All"))

    assert MESSAGE in job_refusal(job())
    assert job_refusal(job("another.example")) == ""
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "probe"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job()["spec"]}},
    }
    # The CronJob is admitted. The Jobs that its controller would make are not: the next test.
    assert refusal(lambda: batch.create_namespaced_cron_job(namespace, cron, dry_run="All")) == ""


def impersonating(api_client: client.ApiClient, user: str, *groups: str) -> client.ApiClient:
    """The same client in another's name."""
    other = copy.copy(api_client)
    other.default_headers = {**api_client.default_headers, "Impersonate-User": user}
    if groups:
        other.default_headers["Impersonate-Group"] = groups[0]
    return other


@pytest.mark.parametrize("controller", ["cronjob-controller", "replicaset-controller", "daemon-set-controller"])
def test_controllers_of_other_kinds_cannot_create_one(
    controller: str, editor: client.ApiClient, admin: client.ApiClient, namespace: str
) -> None:
    user = impersonating(admin, f"system:serviceaccount:kube-system:{controller}", "system:serviceaccounts")
    if controller == "cronjob-controller":
        message = refusal(lambda: client.BatchV1Api(user).create_namespaced_job(namespace, job(), dry_run="All"))
    else:
        message = pod_refusal(client.CoreV1Api(user), namespace, pod())
    assert MESSAGE in message


def test_no_user_can_request_one_and_the_kubelet_can(
    editor: client.ApiClient, admin: client.ApiClient, namespace: str, kubelet: Kubelet
) -> None:
    core = client.CoreV1Api(editor)
    assert MESSAGE in token_refusal(core, namespace, AUDIENCE)
    assert token_refusal(core, namespace, "another.example") == ""
    # The tests' kubelet acts as the administrator, who may make the pod as a controller does.
    made = client.CoreV1Api(admin).create_namespaced_pod(namespace, pod(), _preload_content=False)
    running = kubelet.run(json.loads(made.data))
    assert MESSAGE in token_refusal(core, namespace, AUDIENCE, running)
    node = impersonating(admin, f"system:node:{kubelet.node_name}", "system:nodes")
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    # The node's authorizer learns of the binding a moment later.
    while (
        message := token_refusal(client.CoreV1Api(node), namespace, AUDIENCE, running)
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert message == ""


def test_a_workload_of_the_operator_runs_and_can_be_changed(
    editor: client.ApiClient, namespace: str, operator_kubeconfig: Path, cluster: DynamicClient, kubelet: Kubelet
) -> None:
    with config.new_client_from_config(str(operator_kubeconfig)) as operator:
        client.BatchV1Api(operator).create_namespaced_job(namespace, job())
    (made,) = kubelet.pods_of_job("probe", namespace)
    assert made["spec"]["volumes"][0]["projected"]
    patched = client.BatchV1Api(editor).patch_namespaced_job("probe", namespace, {"metadata": {"labels": {"a": "b"}}})
    assert patched.metadata.labels["a"] == "b"
