"""One contract for all kinds of workload, on their real controllers, with the manifests of examples/workloads."""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob
from support.control_plane.example_job import EXAMPLES, ExampleJob, example_job, running
from support.control_plane.fatal_requests import FATAL_REQUESTS, FatalRequests
from support.control_plane.fixtures import StartControllers
from support.control_plane.in_process_operator import InProcessOperator, KillingTransport, TestClock
from support.control_plane.objects import POD, TRAINING_RECURRENCE, apply_object, get_object
from support.control_plane.training import AUDIENCE
from support.control_plane.waiting import wait_until
from wattloop_operator.cluster.api_transport import HttpTransport, Request
from wattloop_operator.domain.names import RECURRENCE_LABEL, JobKey
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.store import Store
from wattloop_operator.workloads.pod_state import any_running

pytestmark = pytest.mark.long

# Versions that are tried more briefly are last, so that pytest does not start a controller twice.
WHOLE_CONTRACT = [name for name in EXAMPLES if name != "pytorch-job@1.9"]
# Trainer 2.1 has no deadline.
WITH_DEADLINE = [name for name in WHOLE_CONTRACT if name != "train-job@2.1"]

KILLED = ("job-set", "train-job", "pytorch-job", "ray-job")


def usual(*kinds: str, of: Collection[str] = WHOLE_CONTRACT) -> list[object]:
    """The kinds for `parametrize`, in their order: these are in the usual set, and the others in the exhaustive one."""
    return [pytest.param(kind, marks=[] if kind in kinds else [pytest.mark.exhaustive]) for kind in of]


EACH_KIND = usual(*(name for name in EXAMPLES if "@" not in name), of=EXAMPLES)


@pytest.fixture
def results_at_deletion() -> list[str | None]:
    """The results of the attempts whose workloads the operator has deleted, when it asked for that."""
    return []


@pytest.fixture
def operator(
    transport: HttpTransport,
    cluster: DynamicClient,
    store: Store,
    reporting: HttpService,
    clock: TestClock,
    results_at_deletion: list[str | None],
) -> InProcessOperator:
    """An operator whose deletions of workloads are noticed."""

    def noticed(request: Request) -> dict[str, Any]:
        *_, namespace, resource, name = request.path.split("/")
        if request.method == "DELETE" and resource != "trainingrecurrences":
            recurrence = get_object(cluster, TRAINING_RECURRENCE, namespace, name)
            results_at_deletion.append(recurrence["status"].get("result"))
        return transport(request)

    return InProcessOperator(noticed, store, reporting.url, clock)


# Of the module, so that all tests of a kind follow each other.
@pytest.fixture(scope="module", params=WHOLE_CONTRACT)
def kind(request: pytest.FixtureRequest, start_controllers: StartControllers) -> str:
    """The name of an example, whose controllers run."""
    name: str = request.param
    start_controllers(name)
    return name


@pytest.fixture
def example(kind: str, driven: DrivenJob) -> ExampleJob:
    """The manifest of a kind as it stands, but it runs on request; not yet applied."""
    return example_job(kind, driven)


@pytest.fixture
def contract(example: ExampleJob) -> ExampleJob:
    """The same, applied."""
    example.begin()
    return example


@pytest.mark.parametrize("kind", EACH_KIND, indirect=True)
def test_its_pods_report_and_reach_the_target(contract: ExampleJob) -> None:
    pods = contract.run()
    for pod in pods:
        # A server drops fields that the definition of a kind lacks, without an error.
        (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == "wattloop-reporting")
        assert volume["projected"]["sources"][0]["serviceAccountToken"]["audience"] == AUDIENCE
        assert "wattloop-reporting" in {each["name"] for each in pod["spec"]["containers"][0]["volumeMounts"]}
    assert contract.driven.results == [None]
    assert len(contract.driven.recurrence["status"]["pods"]) == contract.example.pods
    trainings = [contract.driven.training_of(pod) for pod in pods]
    for training in trainings:
        assert training.environment.recurrence == contract.driven.name_of()
        assert training.report(1.0, 0.5) is not None
    trainings[0].reach_target()
    contract.succeed(pods)
    contract.await_end()
    assert contract.driven.results == ["Reached"]


@pytest.mark.parametrize("kind", EACH_KIND, indirect=True)
def test_a_crash_counts_and_the_next_attempt_runs_alone(
    contract: ExampleJob, results_at_deletion: list[str | None]
) -> None:
    pods = contract.run()
    contract.driven.training_of(pods[0]).report(1.0, 0.5)
    contract.fail(pods[-1])
    contract.await_end()
    assert contract.driven.results == ["Crashed", None]
    # Its controller may start one again that is not deleted, and nobody would know that it had failed.
    assert set(results_at_deletion) <= {"Crashed"}
    assert results_at_deletion or contract.kind[1] not in {"TrainJob", "RayJob"}
    second = contract.pods_of(attempt=1)
    active = wait_until(
        contract.driven.cluster,
        POD,
        lambda found: running(found) if len(running(found)) == len(second) else None,
        "the pods of the second attempt alone",
        namespace=contract.driven.key.namespace,
    )
    assert {each["metadata"]["name"] for each in active} == {each["metadata"]["name"] for each in second}


@pytest.mark.parametrize("kind", ["ray-job"], indirect=True)
def test_a_program_that_fails_is_a_crash_though_its_pods_run(
    contract: ExampleJob, results_at_deletion: list[str | None]
) -> None:
    contract.run()
    contract.driven.kubelet.fail(contract.submitter())
    contract.await_end()
    assert contract.driven.results == ["Crashed", None]
    assert results_at_deletion == ["Crashed"]
    contract.pods_of(attempt=1)


@pytest.mark.parametrize("kind", usual("job-set", "ray-job"), indirect=True)
def test_a_preempted_pod_is_a_disruption(contract: ExampleJob) -> None:
    pods = contract.run()
    contract.preempt(pods[-1])
    contract.await_end()
    assert contract.driven.results == ["Disrupted", None]
    assert contract.driven.learned == ()


@pytest.mark.parametrize("kind", usual("job", "train-job"), indirect=True)
def test_a_workload_that_a_queue_suspends_is_disrupted_and_deleted(
    contract: ExampleJob, kubectl: ClusterCommand
) -> None:
    contract.run()
    name, namespace = contract.driven.name_of(), contract.driven.key.namespace
    spec: dict[str, Any] = {"suspend": True}
    for step in reversed(contract.example.policy):
        spec = {str(step): spec}
    patch = f"--patch={json.dumps({'spec': spec})}"
    kubectl("patch", contract.kind[1].lower(), name, "--type=merge", patch, namespace=namespace)
    # The controller takes the pods, and the operator sees that they are gone. One that is being deleted still runs.
    wait_until(
        contract.driven.cluster,
        POD,
        lambda pods: not any_running(pods),
        f"the pods of {name} to be taken",
        namespace=namespace,
        label_selector=f"{RECURRENCE_LABEL}={name}",
    )
    contract.driven.reconcile()
    assert contract.driven.results == ["Disrupted", None]
    contract.driven.reconcile()
    assert contract.workloads() == [contract.driven.name_of(1)]


@pytest.mark.parametrize("kind", usual("pytorch-job"), indirect=True)
def test_a_workload_that_is_deleted_by_hand_is_cancelled_and_not_started_again(
    contract: ExampleJob, kubectl: ClusterCommand
) -> None:
    contract.run()
    kubectl("delete", contract.kind[1].lower(), contract.driven.name_of(), namespace=contract.driven.key.namespace)
    contract.driven.reconcile()
    assert contract.driven.results == ["Cancelled"]
    contract.driven.reconcile()
    assert contract.workloads() == []


# A TrainJob has none, and that of a RayJob deletes its RayCluster.
@pytest.mark.parametrize("kind", usual("job-set", of=("job", "job-set", "pytorch-job")), indirect=True)
def test_a_workload_that_its_ttl_deletes_before_its_end_is_read_has_reached(example: ExampleJob) -> None:
    example.set(example.example.policy, ttlSecondsAfterFinished=0)
    example.begin()
    pods = example.run()
    example.driven.training_of(pods[0]).reach_target()
    example.succeed(pods)
    example.await_deletion()
    assert example.driven.results == ["Reached"]
    example.driven.reconcile()
    assert example.workloads() == []


@pytest.mark.parametrize("kind", usual("job-set", "pytorch-job", of=WITH_DEADLINE), indirect=True)
def test_a_workload_beyond_its_own_deadline_says_so_and_is_no_crash(
    example: ExampleJob, kubectl: ClusterCommand
) -> None:
    # The training operator looks at the deadline only when something changes.
    looks_later = example.kind[1] == "PyTorchJob"
    example.set(example.example.deadline, activeDeadlineSeconds=3600 if looks_later else 1)
    example.manifest["spec"]["retries"] = 0
    example.begin()
    if looks_later:
        example.pods_of()
        patch = '--patch={"status":{"startTime":"2020-01-01T00:00:00Z"}}'
        where = {"namespace": example.driven.key.namespace}
        kubectl("patch", "pytorchjob", example.driven.name_of(), "--subresource=status", "--type=merge", patch, **where)
    # On a busy machine it may have ended, and be deleted, before the first reconciliation has.
    if example.driven.results == [None]:
        example.await_end()
    assert example.driven.results == ["DeadlineExceeded"]
    assert "crashed" not in {each.outcome.value for each in example.driven.learned}


@pytest.mark.parametrize("kind", ["train-job"], indirect=True)
def test_a_changed_runtime_makes_another_training(contract: ExampleJob, kubectl: ClusterCommand) -> None:
    def run_again(request: str, nodes: int) -> None:
        patch = f'--patch={{"spec":{{"mlPolicy":{{"numNodes":{nodes}}}}}}}'
        kubectl("patch", "clustertrainingruntime", "torch-distributed", "--type=merge", patch)
        latest = contract.driven.recurrences[-1]["metadata"]["name"]
        kubectl("delete", "trainjob", latest, namespace=contract.driven.key.namespace)
        contract.driven.reconcile()
        contract.manifest["spec"]["runRequest"] = request
        contract.begin()

    run_again("second", nodes=3)
    # As the runtime was.
    run_again("third", nodes=1)
    first, second, third = (each["spec"]["templateDigest"] for each in contract.driven.recurrences)
    assert first == third != second


# What a Job's operator survives, attacks/test_kills.py shows at each request.
@pytest.mark.parametrize("kind", usual("train-job", "ray-job", of=KILLED), indirect=True)
@pytest.mark.parametrize("fatal_requests", FATAL_REQUESTS)
@pytest.mark.timeout(900)
def test_an_operator_killed_at_any_request_runs_nothing_twice_and_loses_nothing(
    contract: ExampleJob, fatal_requests: FatalRequests, transport: HttpTransport, reporting: HttpService, store: Store
) -> None:
    undisturbed = _killed(contract, transport, reporting, store, 0)
    _run_to_target([undisturbed])
    calls = _transport_of(undisturbed).calls
    fatal = fatal_requests(calls)
    cases = [_killed(contract, transport, reporting, store, at) for at in fatal]
    _run_to_target(cases)
    for at, case in zip(fatal, cases, strict=True):
        assert case.driven.operator.starts == 2, f"the operator of call {at} was not killed once"
        assert case.driven.results == ["Reached"], f"killed at call {at}, {_transport_of(case).calls[at - 1]}"
        assert [each.attempt for each in case.driven.learned] == [0]


def _killed(
    contract: ExampleJob, transport: HttpTransport, reporting: HttpService, store: Store, at: int
) -> ExampleJob:
    """The same job under another name, whose operator is killed at a request, before or after it arrives."""
    manifest = contract.manifest | {"metadata": {"name": f"killed-{at}"}}
    apply_object(contract.driven.cluster, manifest, contract.driven.key.namespace)
    killing = KillingTransport(transport, at, after=at % 2 == 0)
    operator = InProcessOperator(killing, store, reporting.url, TestClock(), watch_transport=transport)
    key = JobKey(contract.driven.key.namespace, f"killed-{at}")
    return replace(contract, driven=replace(contract.driven, key=key, operator=operator), manifest=manifest)


def _transport_of(case: ExampleJob) -> KillingTransport:
    found = case.driven.operator.transport
    assert isinstance(found, KillingTransport)
    return found


def _run_to_target(cases: list[ExampleJob]) -> None:
    for case in cases:
        case.driven.reconcile()
    running = [case.run() for case in cases]
    for case, pods in zip(cases, running, strict=True):
        case.driven.training_of(pods[0]).reach_target()
        case.succeed(pods)
    for case in cases:
        case.await_end()
