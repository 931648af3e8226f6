"""`helm test`: one tiny recurrence through a real operator with the chart's rights and the chart's certificate."""

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.kubelet import Kubelet
from support.control_plane.objects import POD
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.pod_process import run_container
from support.control_plane.training import TokenOfPod
from support.control_plane.waiting import Object, wait_until
from support.free_ports import free_port


@pytest.fixture
def operator(
    operator_kubeconfig: Path, release: Release, kubectl: ClusterCommand, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """The operator, serving what the chart has put into its secret; pods reach it at this machine."""
    secret = kubectl.json("get", "secret", "wattloop-reporting", namespace=release.namespace)
    for name, content in secret["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(content))
    port = free_port()
    process = OperatorProcess(
        operator_kubeconfig,
        tmp_path,
        f"sqlite:///{tmp_path}/wattloop.db",
        (release.namespace, "check"),
        report_port=port,
        options=(
            f"--report-url=https://localhost:{port}",
            f"--report-certificate={tmp_path}/tls.crt",
            f"--report-key={tmp_path}/tls.key",
            f"--report-certificate-authority={tmp_path}/ca.crt",
        ),
    )
    yield process
    process.stop()


@pytest.fixture
def helm_test(helm: ClusterCommand, release: Release) -> Iterator[Callable[[], Future[str]]]:
    """Starts `helm test`, which waits for its pod."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda: pool.submit(
            helm, "test", release.name, "--timeout=400s", namespace=release.namespace, timeout=450
        )


def check_pod(cluster: DynamicClient, release: Release) -> Object:
    def waits(pods: list[Object]) -> Object | None:
        return next((pod for pod in pods if pod["status"].get("phase") == "Pending"), None)

    return wait_until(
        cluster,
        POD,
        waits,
        "the pod of helm test",
        namespace=release.namespace,
        label_selector="app.kubernetes.io/component=check",
    )


def left_of_the_check(kubectl: ClusterCommand, release: Release) -> list[str]:
    kinds = "pods,serviceaccounts,roles,rolebindings"
    selector = "--selector=app.kubernetes.io/component=check"
    return kubectl("get", kinds, selector, "--output=name", namespace=release.namespace).split()


def test_helm_test_runs_one_recurrence_and_removes_everything(
    helm_test: Callable[[], Future[str]],
    operator: OperatorProcess,
    cluster: DynamicClient,
    kubectl: ClusterCommand,
    kubelet: Kubelet,
    release: Release,
    service_account_kubeconfig: Callable[[str, str], Path],
    token_of_pod: TokenOfPod,
    tmp_path: Path,
) -> None:
    running = helm_test()
    pod = kubelet.run(check_pod(cluster, release))
    account = service_account_kubeconfig(release.namespace, pod["spec"]["serviceAccountName"])
    with ThreadPoolExecutor(1) as pool:
        checking = pool.submit(run_container, pod, tmp_path, token_of_pod, {"KUBECONFIG": str(account)})

        def of_a_recurrence(pods: list[Object]) -> Object | None:
            return pods[0] if pods else None

        training = wait_until(
            cluster,
            POD,
            of_a_recurrence,
            "the training of the check",
            namespace=release.namespace,
            label_selector="wattloop.dev/recurrence",
        )
        kubelet.run(training)
        trained = run_container(training, tmp_path, token_of_pod)
        assert (trained.returncode, trained.stderr) == (0, "")
        kubelet.succeed(training)
        checked = checking.result()
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "Reached: progress reached 1" in checked.stdout
    assert "check passed" in checked.stdout
    kubelet.succeed(pod)
    assert "Phase:          Succeeded" in running.result()
    assert left_of_the_check(kubectl, release) == []
    assert kubectl("get", "rtj", "--output=name", namespace=release.namespace) == ""
    # The job's dependents are deleted a moment later.
    kubectl("wait", "--for=delete", "trec", "--all", "--timeout=150s", namespace=release.namespace)
    kubectl(
        "wait", "--for=delete", f"pod/{training['metadata']['name']}", "--timeout=150s", namespace=release.namespace
    )


def test_a_failed_check_fails_helm_test_and_keeps_its_pod(
    helm_test: Callable[[], Future[str]],
    cluster: DynamicClient,
    kubectl: ClusterCommand,
    kubelet: Kubelet,
    release: Release,
    core: client.CoreV1Api,
) -> None:
    running = helm_test()
    kubelet.fail(check_pod(cluster, release))
    with pytest.raises(CommandError, match="wattloop-check"):
        running.result()
    assert left_of_the_check(kubectl, release) == ["pod/wattloop-check"]
    core.delete_namespaced_pod("wattloop-check", release.namespace, grace_period_seconds=0)
