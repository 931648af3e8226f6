"""Fixtures of the operator under test, in this process, with exactly the rights that the chart gives it."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.dynamic import DynamicClient

from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, await_job_end, recurrences_of_job
from support.control_plane.example_job import EXAMPLES
from support.control_plane.fixtures import Ended, JobOf, MakeJob, Operators, RecurrencesOf, StartControllers, Train
from support.control_plane.in_process_operator import InProcessOperator, TestClock
from support.control_plane.job_manifest import job_manifest
from support.control_plane.kind_controller import KindController, running_controller
from support.control_plane.kubelet import Kubelet
from support.control_plane.memory_cgroup import MemoryCgroup, memory_cgroup, missing_requirement, operator_limit_bytes
from support.control_plane.objects import RECURRING_TRAINING_JOB, apply_object, get_object
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.pod_runner import PodRunner
from support.control_plane.stored_attempts import cluster_progress
from support.control_plane.train_set import CRD, GROUP
from support.control_plane.training import TokenOfPod, Training
from support.free_ports import free_port
from wattloop.commands.settings import Address
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.auth.authorizers import ClusterAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.domain.names import JobKey
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store, open_store


@pytest.fixture(scope="session")
def transport(operator_kubeconfig: Path) -> Iterator[HttpTransport]:
    """A transport with the rights of the chart's operator."""
    configuration = client.Configuration()
    config.load_kube_config(config_file=str(operator_kubeconfig), client_configuration=configuration)
    configuration.connection_pool_maxsize = 16
    with client.ApiClient(configuration) as api_client:
        yield HttpTransport(api_client)


@pytest.fixture
def reporting(transport: HttpTransport, store: Store, clock: TestClock) -> Iterator[HttpService]:
    """The reporting API over HTTP."""
    api = ClusterApi(transport)
    service = ReportService(
        cluster_progress(api, store, clock), ClusterAuthorizer(api, TokenReviews(api, time.monotonic), time.monotonic)
    )
    served = HttpService("reporting API", create_app(service), Address("127.0.0.1", 0))
    served.start()
    yield served
    served.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with open_store(tmp_path / "wattloop.db") as opened:
        yield opened


@pytest.fixture
def clock() -> TestClock:
    """Real time plus an offset that the test advances."""
    return TestClock()


@pytest.fixture
def operator(transport: HttpTransport, store: Store, reporting: HttpService, clock: TestClock) -> InProcessOperator:
    """An operator that reconciles when the test asks for it."""
    return InProcessOperator(transport, store, reporting.url, clock)


@pytest.fixture
def driven(
    operator: InProcessOperator,
    kubelet: Kubelet,
    cluster: DynamicClient,
    crds: None,
    token_of_pod: TokenOfPod,
    tmp_path: Path,
    namespace: str,
) -> DrivenJob:
    """A job, not yet applied, with that operator."""
    key = JobKey(namespace, "digits")
    return DrivenJob(key, operator, kubelet, cluster, lambda pod: Training(pod, token_of_pod, tmp_path))


@pytest.fixture
def train(kubelet: Kubelet, token_of_pod: TokenOfPod, tmp_path: Path) -> Train:
    """Starts the pod of a recurrence's Job and returns its training."""

    def run(key: JobKey, name: str) -> Training:
        (pod,) = kubelet.pods_of_job(name, key.namespace)
        return Training(kubelet.run(pod), token_of_pod, tmp_path)

    return run


@pytest.fixture
def ended(cluster: DynamicClient) -> Ended:
    """Waits until the Job of a recurrence has ended."""

    return lambda key, name: await_job_end(cluster, key, name)


@pytest.fixture
def make_job(cluster: DynamicClient, crds: None, namespace: str) -> MakeJob:
    """Applies a job that runs on request, with some fields of its spec replaced."""

    def make(name: str = "digits", **spec: Any) -> JobKey:
        apply_object(cluster, job_manifest(name, **spec), namespace)
        return JobKey(namespace, name)

    return make


@pytest.fixture
def job_of(cluster: DynamicClient) -> JobOf:
    """Returns the current RecurringTrainingJob."""
    return lambda key: get_object(cluster, RECURRING_TRAINING_JOB, key.namespace, key.name)


@pytest.fixture
def recurrences_of(cluster: DynamicClient) -> RecurrencesOf:
    """Returns the TrainingRecurrences of a job, by index and attempt."""

    return lambda key: recurrences_of_job(cluster, key)


@pytest.fixture
def train_sets(kubectl: ClusterCommand, release: Release) -> Iterator[None]:
    """The kind, which the release lists in operator.workloadKinds."""
    kubectl.apply(CRD)
    kubectl("wait", "--for=condition=Established", f"crd/trainsets.{GROUP}", "--timeout=150s")
    yield
    kubectl("delete", f"crd/trainsets.{GROUP}")


@pytest.fixture(scope="module")
def start_controllers(
    programs: Mapping[str, Path],
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    release: Release,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StartControllers]:
    """Starts the controllers of an example of examples/workloads, unless they run, and ends other versions of them.

    It skips a test without one of them.
    """
    if shutil.which("go") is None:
        pytest.skip("no Go, which downloads the definitions of the kinds")
    running: dict[KindController, contextlib.ExitStack] = {}
    with contextlib.ExitStack() as controllers:

        def start(example: str) -> None:
            for each in EXAMPLES[example].controllers:
                if each.program not in programs:
                    pytest.skip(f"{each.program} is not built: make programs builds it, or says why it cannot")
                if each in running:
                    continue
                # Two versions have the same definitions.
                for other in [one for one in running if one.module.requirement == each.module.requirement]:
                    running.pop(other).close()
                context = controllers.enter_context(contextlib.ExitStack())
                folder = tmp_path_factory.mktemp(each.program)
                context.enter_context(running_controller(each, programs[each.program], kubectl, cluster, folder))
                running[each] = context

        yield start


@pytest.fixture
def container() -> Iterator[MemoryCgroup]:
    """A cgroup with the memory limit of the chart's operator; the test fails if the kernel kills a process in it."""
    missing = missing_requirement()
    if missing is not None:
        pytest.skip(missing)
    with memory_cgroup(operator_limit_bytes()) as made:
        yield made
        assert made.kills == 0, f"the kernel killed a process for the limit of {made.limit_bytes} bytes"


@pytest.fixture
def pod_runner(
    core: client.CoreV1Api, kubelet: Kubelet, token_of_pod: TokenOfPod, tmp_path: Path, namespace: str
) -> Iterator[PodRunner]:
    """Runs the victim's training pods."""
    with PodRunner(core, kubelet, token_of_pod, tmp_path, namespace) as working:
        yield working


@pytest.fixture
def operators(operator_kubeconfig: Path, release: Release, namespace: str, tmp_path: Path) -> Iterator[Operators]:
    """Starts operators with options, one after another on the same database and address."""
    started: list[OperatorProcess] = []
    port = free_port()

    def with_options(*options: str, cgroup: MemoryCgroup | None = None) -> Callable[[], OperatorProcess]:
        def start() -> OperatorProcess:
            database, lease = f"sqlite:///{tmp_path}/wattloop.db", (release.namespace, namespace)
            name = f"operator-{len(started)}"
            process = OperatorProcess(
                operator_kubeconfig, tmp_path, database, lease,
                name=name, report_port=port, options=options, cgroup=cgroup,
            )  # fmt: skip
            started.append(process)
            return process

        return start

    yield with_options
    for process in started:
        process.resume()
        process.stop()
