"""An operator limited to some namespaces: its rights, watches and reports."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.chart.rights import granted, granted_soon
from support.control_plane.chart import CHART
from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.job_manifest import job_manifest
from support.control_plane.kubelet import Kubelet
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.pod_runner import PodRunner
from support.control_plane.training import AUDIENCE, TokenOfPod
from support.control_plane.victims import await_reached
from wattloop_operator.domain.names import JobKey

HOME, ACCOUNT = "narrow", "narrow-wattloop-operator"
NAMESPACES = ("narrow-a", "narrow-b")
OTHER_NAMESPACE = "narrow-outside"
VALUES = (
    "--set=crds.install=false,operator.replicas=0,agent.enabled=false,rbac.userRoles=false,"
    "admission.authors.enabled=false,admission.reportTokens.enabled=false,"
    "admission.agentSocket.enabled=false"
)


def install(helm: ClusterCommand, *namespaces: str) -> str:
    listed = f"--set-json=operator.namespaces={json.dumps(namespaces)}"
    return helm("upgrade", "--install", "narrow", str(CHART), "--create-namespace", VALUES, listed, namespace=HOME)


def await_rights(admin: client.ApiClient, where: str) -> None:
    """Wait until the RoleBinding of a namespace is in effect."""
    verbs = {"get", "list", "watch", "create", "patch", "delete"}
    resource = "trainingrecurrences.wattloop.dev"
    access = {"admin": admin, "namespace": HOME, "service_account": ACCOUNT, "resource": resource, "where": where}
    assert granted_soon(verbs, **access) == verbs


@pytest.fixture(scope="module")
def account(
    crds: None,
    helm: ClusterCommand,
    kubectl: ClusterCommand,
    core: client.CoreV1Api,
    admin: client.ApiClient,
    service_account_kubeconfig: Callable[[str, str], Path],
) -> Iterator[Path]:
    """A kubeconfig of the operator's service account, of a release for two namespaces."""
    for name in (*NAMESPACES, OTHER_NAMESPACE):
        kubectl("create", "namespace", name)
    install(helm, *NAMESPACES)
    for name in NAMESPACES:
        await_rights(admin, name)
    yield service_account_kubeconfig(HOME, ACCOUNT)
    helm("uninstall", "narrow", namespace=HOME)
    for name in (*NAMESPACES, OTHER_NAMESPACE, HOME):
        core.delete_namespace(name)


@pytest.fixture
def start(account: Path, tmp_path: Path) -> Iterator[Callable[..., OperatorProcess]]:
    """Starts an operator with that service account."""
    started: list[OperatorProcess] = []

    def start_with(*namespaces: str) -> OperatorProcess:
        options = (f"--namespaces={','.join(namespaces)}", "--resync-seconds=10")
        database = f"sqlite:///{tmp_path}/wattloop.db"
        started.append(OperatorProcess(account, tmp_path, database, (HOME, "narrow"), options=options))
        return started[-1]

    yield start_with
    for process in started:
        process.stop()


def test_the_operator_has_rights_only_in_the_listed_namespaces(account: Path, admin: client.ApiClient) -> None:
    of_account = {"admin": admin, "namespace": HOME, "service_account": ACCOUNT}
    for resource, verbs in (
        ("jobs.batch", {"get", "list", "watch", "create", "delete"}),
        ("pods", {"get", "list", "watch"}),
        ("recurringtrainingjobs.wattloop.dev", {"get", "list", "watch", "patch"}),
        ("trainingrecurrences.wattloop.dev", {"get", "list", "watch", "create", "patch", "delete"}),
        ("events.events.k8s.io", {"create"}),
    ):
        for where in NAMESPACES:
            assert granted_soon(verbs, resource=resource, where=where, **of_account) == verbs
        assert granted(resource=resource, where=OTHER_NAMESPACE, **of_account) == set()
    # Cluster-scoped objects.
    for resource, verbs in (
        ("nodes", {"get", "list"}),
        ("gpupowerpolicies.wattloop.dev", {"get", "list", "watch"}),
        ("gpupowerpolicies.wattloop.dev/status", {"patch"}),
        ("gpunodes.wattloop.dev", {"create"}),
        ("gpunodes.wattloop.dev/status", {"patch"}),
        ("tokenreviews.authentication.k8s.io", {"create"}),
    ):
        assert granted_soon(verbs, resource=resource, where="", **of_account) == verbs


def test_only_jobs_in_listed_namespaces_run(
    start: Callable[..., OperatorProcess],
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    core: client.CoreV1Api,
    kubelet: Kubelet,
    token_of_pod: TokenOfPod,
    tmp_path: Path,
) -> None:
    kubectl.apply(job_manifest("outside"), namespace=OTHER_NAMESPACE)
    operator = start(*NAMESPACES)
    for namespace in NAMESPACES:
        folder = tmp_path / namespace
        folder.mkdir()
        with PodRunner(core, kubelet, token_of_pod, folder, namespace):
            kubectl.apply(job_manifest("inside"), namespace=namespace)
            await_reached(cluster, JobKey(namespace, "inside"))
    # A pod of another namespace is rejected immediately.
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other-pod"}}
    pod = {**body, "spec": {"containers": [{"name": "x", "image": "x:1"}]}}
    made = json.loads(core.create_namespaced_pod(OTHER_NAMESPACE, pod, _preload_content=False).data)
    url = operator.url_of("reporting API")
    answer = httpx.post(
        f"{url}/v1/namespaces/{OTHER_NAMESPACE}/recurrences/outside/progress",
        json={"process": "p", "sequence": 1, "epoch": 1.0},
        headers={"Authorization": f"Bearer {token_of_pod(made, AUDIENCE)}"},
        timeout=60.0,
    )
    assert answer.status_code == 403, answer.text
    # Meanwhile every kind was resynced, and nothing was missed or rejected.
    operator.await_line("leads")
    problems = [line["message"] for line in operator.lines() if line["level"] in {"WARNING", "ERROR"}]
    # A busy API server may let a request time out, which is repeated.
    assert [problem for problem in problems if "no response from the API server" not in problem] == []
    assert kubectl.json("get", "trec,jobs.batch", namespace=OTHER_NAMESPACE)["items"] == []
    assert "status" not in kubectl.json("get", "rtj", "outside", namespace=OTHER_NAMESPACE)


def test_a_missing_namespace_stops_no_other(start: Callable[..., OperatorProcess]) -> None:
    operator = start("narrow-a", "narrow-missing")
    line = operator.await_line("namespace narrow-missing: its RecurringTrainingJobs are not run")
    assert "or there is no such namespace" in line["message"]
    operator.await_line("leads")


def test_a_namespace_that_returns_is_watched_after_a_restart(
    start: Callable[..., OperatorProcess], helm: ClusterCommand, kubectl: ClusterCommand, admin: client.ApiClient
) -> None:
    operator = start("narrow-a", "narrow-late")
    operator.await_line("leads")
    kubectl("create", "namespace", "narrow-late")
    install(helm, *NAMESPACES, "narrow-late")
    await_rights(admin, "narrow-late")
    assert operator.await_exit() != 0
    assert "the namespace narrow-late is readable now" in operator.log.read_text()
    again = start("narrow-a", "narrow-late")
    again.await_line("leads")
    assert not [line for line in again.lines() if "are not run" in line["message"]]
    install(helm, *NAMESPACES)
    kubectl("delete", "namespace", "narrow-late", "--wait=false")


def test_an_operator_without_a_readable_namespace_ends_with_an_error(start: Callable[..., OperatorProcess]) -> None:
    operator = start("narrow-missing")
    assert operator.await_exit() != 0
    assert "no namespace of --namespaces is readable" in operator.log.read_text()


def test_the_chart_rejects_a_missing_namespace(account: Path, helm: ClusterCommand) -> None:
    with pytest.raises(CommandError, match=r"operator\.namespaces: there is no namespace narrow-missing; create it"):
        install(helm, "narrow-a", "narrow-missing")
