"""One node with Wattloop on it for all tests of this folder. docs/internals/testing.md describes the fixtures."""

import contextlib
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient

import nvml_simulator
from support.binaries.build import NODE, BinariesUnavailableError, ensure
from support.control_plane.commands import ClusterCommand
from support.control_plane.failure_report import namespace_sections, pod_sections
from support.control_plane.terminal import past_capture, skipped_for
from support.images import built_images
from support.images import missing_requirement as missing_image_program
from support.kubernetes_node.installation import (
    AGENTS,
    OPERATORS,
    WITHOUT_SOCKETS,
    helm_of,
    install,
    kubectl_of,
    mounts_sockets,
    prepare,
)
from support.kubernetes_node.node import About
from support.kubernetes_node.requirements import missing_requirement
from support.kubernetes_node.running_node import running_node, runs_already

HERE = Path(__file__).parent
SKIPPED = "no Kubernetes node"
CLUSTER = pytest.StashKey[tuple[ClusterCommand, DynamicClient]]()
NAMES_OF_NAMESPACES = ("NAMESPACE", "NEIGHBOUR", "VICTIMS", "ATTACKERS", "RESTRICTED")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker("node")
            # The first of them starts the node and waits for images.
            item.add_marker(pytest.mark.timeout(1200))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds or builds programs and images before the first test, and says how far it is."""
    if session.config.option.collectonly or not any(item.get_closest_marker("node") for item in session.items):
        return
    # The fixtures report errors again.
    with past_capture(session.config), contextlib.suppress(BinariesUnavailableError, subprocess.CalledProcessError):
        if missing() is None and not runs_already():
            ensure(NODE)
            built_images()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Prints at the very end how many tests were skipped without a node."""
    yield
    skipped = skipped_for(terminalreporter, SKIPPED)
    if skipped:
        words = f"{skipped} TESTS ON A NODE WERE SKIPPED: {missing() or 'no programs, and no Go to build them'}"
        terminalreporter.write_line(words, red=True, bold=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed test the logs of Wattloop's pods, and the objects of the test's namespaces."""
    report = yield
    if report.failed and item.path.parent == HERE and CLUSTER in item.session.stash:
        kubectl, cluster = item.session.stash[CLUSTER]
        for namespace in (AGENTS, OPERATORS):
            report.sections += pod_sections(kubectl, namespace)
        module = item.getparent(pytest.Module)
        for name in NAMES_OF_NAMESPACES:
            if module is not None and hasattr(module.obj, name):
                report.sections += namespace_sections(cluster, getattr(module.obj, name))
    return report


def missing() -> str | None:
    """Why there can be no node here, in one line; None where there can."""
    return missing_requirement() or missing_image_program()


@pytest.fixture(scope="session")
def bare_node() -> Iterator[About]:
    """A node with the images, and the namespaces for operator and agent, but without Wattloop."""
    if missing() is not None:
        pytest.skip(SKIPPED)
    try:
        ensure(NODE)
    except BinariesUnavailableError:
        pytest.skip(SKIPPED)
    if runs_already():
        with running_node() as about:
            yield about
        return
    images = built_images()
    with running_node() as about:
        prepare(about, images.values())
        yield about


@pytest.fixture(scope="session")
def node(bare_node: About) -> Iterator[About]:
    """The node with Wattloop installed by Helm."""
    if not runs_already():
        install(bare_node)
    yield bare_node
    if runs_already():
        mount_sockets(bare_node, mounted=True)


@pytest.fixture(scope="module", autouse=True)
def release(request: pytest.FixtureRequest) -> None:
    """Training pods have the agent's socket, unless the module has `MOUNTS_SOCKETS = False`.

    An upgrade takes half a minute, so a release stays as it is until a module needs another one.
    """
    if request.path.parent == HERE:
        about = request.getfixturevalue("node")
        mount_sockets(about, mounted=getattr(request.module, "MOUNTS_SOCKETS", True))


def mount_sockets(about: About, *, mounted: bool) -> None:
    """Upgrade the release if its training pods differ from that."""
    if mounts_sockets(about) != mounted:
        install(about, {} if mounted else WITHOUT_SOCKETS, verb="upgrade")


@pytest.fixture(scope="session")
def kubectl(node: About) -> ClusterCommand:
    """kubectl as an administrator."""
    return kubectl_of(node)


@pytest.fixture(scope="session")
def helm(node: About) -> ClusterCommand:
    """Helm as an administrator."""
    return helm_of(node)


@pytest.fixture(scope="session")
def cluster(node: About, kubectl: ClusterCommand, request: pytest.FixtureRequest) -> Iterator[DynamicClient]:
    """Any kind of object with an administrator's rights; what `wait_until` takes."""
    with config.new_client_from_config(node.kubeconfig) as api_client:
        client_of_node = DynamicClient(api_client, cache_file=str(Path(node.folder) / "discovery.json"))
        request.session.stash[CLUSTER] = kubectl, client_of_node
        yield client_of_node
        del request.session.stash[CLUSTER]


@pytest.fixture(scope="session")
def core(cluster: DynamicClient) -> client.CoreV1Api:
    """The core API with an administrator's rights."""
    return client.CoreV1Api(cluster.client)


@pytest.fixture(scope="session")
def gpus(node: About) -> Iterator[nvml_simulator.Machine]:
    """The node's simulated GPUs: the truth about them, and their faults."""
    with nvml_simulator.Machine(node.gpus_state) as machine:
        yield machine
