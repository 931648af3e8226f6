"""Fixtures of the tests that need a real Kubernetes control plane. docs/internals/testing.md describes them."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient

from support.binaries.build import CONTROLLERS, FURTHER_VERSIONS, USED_BY_TESTS, BinariesUnavailableError, ensure, find
from support.chart.rights import granted_soon
from support.control_plane.chart import Release, install_for_operator_under_test
from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import ControlPlane, running_control_plane
from support.control_plane.failure_report import namespace_sections, server_sections
from support.control_plane.kubelet import Kubelet
from support.control_plane.objects import SERVICE_ACCOUNT, delete_work
from support.control_plane.terminal import past_capture, skipped_for
from support.control_plane.tokens import pod_token, service_account_token
from support.control_plane.training import TokenOfPod
from support.control_plane.waiting import wait_until

HERE = Path(__file__).parent
CRDS = HERE.parents[1] / "crds"
SKIPPED = "no Kubernetes control plane"
TIMEOUT_SECONDS = 500
NAMESPACE = pytest.StashKey[tuple[DynamicClient, str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("cluster")
            # Longer than any wait inside: its own error says what was there instead.
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
    # Alone at the end they would occupy one of the two processes of `make test-cluster`.
    items.sort(key=lambda item: not is_long(item))


def is_long(item: pytest.Item) -> bool:
    """Whether a test has a timeout of its own that is longer than that of the others."""
    return item.path.is_relative_to(HERE) and any(
        mark.args[0] > TIMEOUT_SECONDS for mark in item.iter_markers("timeout")
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build the programs before the first test, because a build exceeds a test's timeout."""
    if session.config.option.collectonly or not any(item.get_closest_marker("cluster") for item in session.items):
        return
    # The fixture `programs` skips tests whose programs are missing.
    with past_capture(session.config), contextlib.suppress(BinariesUnavailableError):
        ensure(USED_BY_TESTS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Report at the end the number of tests skipped without a control plane."""
    yield
    skipped = skipped_for(terminalreporter, SKIPPED)
    if skipped:
        try:
            ensure(USED_BY_TESTS)
        except BinariesUnavailableError as error:
            text = f"{skipped} CLUSTER TESTS WERE SKIPPED: {error}"
            terminalreporter.write_line(text, red=True, bold=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed test what its servers logged, and the objects of its namespace."""
    report = yield
    if report.failed and item.path.is_relative_to(HERE):
        report.sections += server_sections()
        if NAMESPACE in item.stash:
            report.sections += namespace_sections(*item.stash[NAMESPACE])
    return report


@pytest.fixture(scope="session")
def programs() -> Mapping[str, Path]:
    """Paths of the control plane's programs, kubectl and helm, and of the controllers that are built."""
    try:
        beside = (*CONTROLLERS, *FURTHER_VERSIONS)
        return ensure(USED_BY_TESTS) | {name: path for name in beside if (path := find(name))}
    except BinariesUnavailableError:
        pytest.skip(SKIPPED)


@pytest.fixture(scope="session")
def control_plane(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane of this test process; all its parts must run until the tests end."""
    with running_control_plane(programs, tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane
        plane.check_alive()


@pytest.fixture(scope="session")
def admin(control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """The official client with an administrator's rights."""
    with config.new_client_from_config(str(control_plane.admin_kubeconfig)) as api_client:
        yield api_client


@pytest.fixture(scope="session")
def core(admin: client.ApiClient) -> client.CoreV1Api:
    """The core API with an administrator's rights."""
    return client.CoreV1Api(admin)


@pytest.fixture(scope="session")
def cluster(admin: client.ApiClient, control_plane: ControlPlane) -> DynamicClient:
    """A dynamic client with an administrator's rights, for `wait_until`."""
    return DynamicClient(admin, cache_file=str(control_plane.folder / "discovery.json"))


@pytest.fixture(scope="session")
def kubectl(
    control_plane: ControlPlane, programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> ClusterCommand:
    """kubectl as an administrator; `kubectl.as_user(kubeconfig)` is another user."""
    home = tmp_path_factory.mktemp("kubectl-home")
    return ClusterCommand(programs["kubectl"], control_plane.admin_kubeconfig, home)


@pytest.fixture(scope="session")
def helm(
    control_plane: ControlPlane, programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> ClusterCommand:
    """Helm as an administrator."""
    return ClusterCommand(programs["helm"], control_plane.admin_kubeconfig, tmp_path_factory.mktemp("helm-home"))


@pytest.fixture(scope="session")
def kubelet(cluster: DynamicClient) -> Iterator[Kubelet]:
    """The simulated kubelet, by which a test controls pods."""
    with Kubelet(cluster) as kubelet_of_node:
        yield kubelet_of_node


@pytest.fixture(scope="session")
def crds(kubectl: ClusterCommand) -> None:
    """The custom resource definitions of crds/, established."""
    kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
    kubectl("wait", "--for=condition=Established", f"--filename={CRDS}", "--timeout=150s")


@pytest.fixture(scope="session")
def release(helm: ClusterCommand, crds: None) -> Release:
    """The chart installed without pods, for an operator that a test runs as a process."""
    return install_for_operator_under_test(helm)


@pytest.fixture(scope="session")
def operator_kubeconfig(
    release: Release, admin: client.ApiClient, service_account_kubeconfig: Callable[[str, str], Path]
) -> Path:
    """A kubeconfig with exactly the rights that the chart gives the operator, once they are in effect."""
    account = {"admin": admin, "namespace": release.namespace, "service_account": release.operator_service_account}
    for resource, where, verbs in (
        ("recurringtrainingjobs.wattloop.dev", "", {"get", "list", "watch", "patch"}),
        ("leases.coordination.k8s.io", release.namespace, {"get", "create", "update"}),
    ):
        assert granted_soon(verbs, resource=resource, where=where, **account) == verbs
    return service_account_kubeconfig(release.namespace, release.operator_service_account)


@pytest.fixture
def namespace(core: client.CoreV1Api, cluster: DynamicClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of this test with its default service account; it stays, without anything that runs in it."""
    made = core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(generate_name="test-")))
    name = str(made.metadata.name)
    request.node.stash[NAMESPACE] = cluster, name
    wait_until(
        cluster,
        SERVICE_ACCOUNT,
        bool,
        f"the default service account of {name}",
        namespace=name,
        field_selector="metadata.name=default",
    )
    yield name
    delete_work(core.api_client, name)


@pytest.fixture(scope="session")
def service_account_kubeconfig(control_plane: ControlPlane, core: client.CoreV1Api) -> Callable[[str, str], Path]:
    """Returns a kubeconfig of (namespace, service account), with the rights that RBAC grants."""

    def kubeconfig(namespace: str, service_account: str) -> Path:
        token = service_account_token(core, namespace, service_account)
        return control_plane.kubeconfig_by_token(f"{namespace}.{service_account}", token, namespace=namespace)

    return kubeconfig


@pytest.fixture(scope="session")
def token_of_pod(core: client.CoreV1Api) -> TokenOfPod:
    """Returns the token of a projected volume of (pod, audience)."""
    return lambda pod, audience: pod_token(core, pod, audiences=[audience])
