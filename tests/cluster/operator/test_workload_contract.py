"""One contract for all kinds of workload, on their real controllers, with the manifests of examples/workloads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.dynamic import DynamicClient

from support.control_plane.chart import REPOSITORY, Release
from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import ControlPlane
from support.control_plane.driven_job import DrivenJob
from support.control_plane.in_process_operator import InProcessOperator, KillingTransport, TestClock
from support.control_plane.job_set_controller import job_set_controller
from support.control_plane.objects import list_objects
from support.control_plane.waiting import Object, wait_until
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.domain.names import RECURRENCE_LABEL, JobKey
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.store import Store, open_store
from wattloop_operator.workloads.kinds import kind_named

EXAMPLES = REPOSITORY / "examples" / "workloads"
# By kind, the number of pods of its manifest.
PODS = {"job": 1, "job-set": 2}
ENDED = {"Succeeded", "Failed"}


@pytest.fixture(scope="module")
def _controllers(
    control_plane: ControlPlane,
    programs: Mapping[str, Path],
    kubectl: ClusterCommand,
    release: Release,
    cluster: DynamicClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """The controller of JobSets; that of Jobs always runs."""
    if shutil.which("go") is None:
        pytest.skip("no Go, which downloads the definitions of the kinds")
    folder = tmp_path_factory.mktemp("jobset")
    with job_set_controller(programs["jobset"], control_plane.admin_kubeconfig, kubectl, cluster, folder):
        yield


@dataclass
class Contract:
    """A job whose workload is of one kind.

    Attributes:
        driven: The job.
        manifest: Its manifest, as in examples/workloads, but it runs on request.
        pods: Number of pods of a workload.
    """

    driven: DrivenJob
    manifest: dict[str, Any]
    pods: int

    @property
    def kind(self) -> tuple[str, str]:
        """API version and kind of its workloads."""
        workload = self.manifest["spec"]["template"].get("workload", {})
        return workload.get("apiVersion", "batch/v1"), workload.get("kind", "Job")

    def pods_of(self, attempt: int = 0) -> list[Object]:
        """Wait for the pods of an attempt that have not ended."""
        name = self.driven.name_of(attempt)

        def active(pods: list[Object]) -> list[Object] | None:
            found = _running(pods)
            return found if len(found) == self.pods else None

        return wait_until(
            self.driven.cluster,
            api_version="v1",
            kind="Pod",
            namespace=self.driven.key.namespace,
            label_selector=f"{RECURRENCE_LABEL}={name}",
            condition=active,
            what=f"{self.pods} pods of {name}",
        )

    def run(self, attempt: int = 0) -> list[Object]:
        """Run the pods of an attempt, and reconcile."""
        pods = [self.driven.kubelet.run(pod) for pod in self.pods_of(attempt)]
        self.driven.reconcile()
        return pods

    def await_end(self, attempt: int = 0) -> None:
        """Wait until the workload of an attempt has ended as Wattloop reads it, and reconcile."""
        namespace, name = self.driven.key.namespace, self.driven.name_of(attempt)

        def ended(bodies: list[Object]) -> bool:
            pods = list_objects(self.driven.cluster, ("v1", "Pod"), namespace, f"{RECURRENCE_LABEL}={name}")
            return any(kind_named(*self.kind).observe(body, pods).phase.ended for body in bodies)

        wait_until(
            self.driven.cluster,
            api_version=self.kind[0],
            kind=self.kind[1],
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            condition=ended,
            what=f"{self.kind[1]} {name} to end",
        )
        self.driven.reconcile()

    def workloads(self) -> list[str]:
        """Names of the workloads that exist and are not being deleted."""
        found = list_objects(self.driven.cluster, self.kind, self.driven.key.namespace, "wattloop.dev/job")
        return sorted(each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"])


@pytest.fixture(params=PODS)
def contract(
    request: pytest.FixtureRequest, _controllers: None, kubectl: ClusterCommand, driven: DrivenJob
) -> Contract:
    """The manifest of a kind, applied as it stands, but it runs on request."""
    manifest = yaml.safe_load((EXAMPLES / f"{request.param}.yaml").read_text(encoding="utf-8"))
    manifest["spec"] |= {"trigger": {"manual": {}}, "runRequest": "first"}
    kubectl.apply(manifest, namespace=driven.key.namespace)
    key = JobKey(driven.key.namespace, manifest["metadata"]["name"])
    made = Contract(replace(driven, key=key), manifest, PODS[request.param])
    made.driven.reconcile()
    return made


def test_its_pods_report_and_reach_the_target(contract: Contract) -> None:
    pods = contract.run()
    assert contract.driven.results == [None]
    assert len(contract.driven.recurrence["status"]["pods"]) == contract.pods
    trainings = [contract.driven.training_of(pod) for pod in pods]
    for training in trainings:
        assert training.environment.recurrence == contract.driven.name_of()
        assert training.report(1.0, 0.5) is not None
    trainings[0].reach_target()
    for pod in pods:
        contract.driven.kubelet.succeed(pod)
    contract.await_end()
    assert contract.driven.results == ["Reached"]


def test_a_crash_counts_and_the_next_attempt_runs_alone(contract: Contract) -> None:
    pods = contract.run()
    contract.driven.training_of(pods[0]).report(1.0, 0.5)
    contract.driven.kubelet.fail(pods[-1], exit_code=3)
    contract.await_end()
    assert contract.driven.results == ["Crashed", None]
    second = contract.pods_of(attempt=1)
    active = wait_until(
        contract.driven.cluster,
        api_version="v1",
        kind="Pod",
        namespace=contract.driven.key.namespace,
        condition=lambda found: _running(found) if len(_running(found)) == len(second) else None,
        what="the pods of the second attempt alone",
    )
    assert {each["metadata"]["name"] for each in active} == {each["metadata"]["name"] for each in second}


def test_a_preempted_pod_is_a_disruption(contract: Contract) -> None:
    pods = contract.run()
    contract.driven.kubelet.preempt(pods[-1])
    contract.await_end()
    assert contract.driven.results == ["Disrupted", None]
    assert contract.driven.learned == ()


def test_a_workload_that_a_queue_suspends_is_disrupted_and_deleted(contract: Contract, kubectl: ClusterCommand) -> None:
    contract.run()
    name, namespace = contract.driven.name_of(), contract.driven.key.namespace
    patch = '--patch={"spec":{"suspend":true}}'
    kubectl("patch", contract.kind[1].lower(), name, "--type=merge", patch, namespace=namespace)
    # The controller takes the pods, and the operator sees that they are gone.
    wait_until(
        contract.driven.cluster,
        api_version="v1",
        kind="Pod",
        namespace=namespace,
        label_selector=f"{RECURRENCE_LABEL}={name}",
        condition=lambda pods: not _running(pods),
        what=f"the pods of {name} to be taken",
    )
    contract.driven.reconcile()
    assert contract.driven.results == ["Disrupted", None]
    contract.driven.reconcile()
    assert contract.workloads() == [contract.driven.name_of(1)]


def test_a_workload_that_is_deleted_by_hand_is_cancelled_and_not_started_again(
    contract: Contract, kubectl: ClusterCommand
) -> None:
    contract.run()
    kubectl("delete", contract.kind[1].lower(), contract.driven.name_of(), namespace=contract.driven.key.namespace)
    contract.driven.reconcile()
    assert contract.driven.results == ["Cancelled"]
    contract.driven.reconcile()
    assert contract.workloads() == []


@pytest.mark.timeout(900)
def test_an_operator_killed_at_any_request_runs_nothing_twice_and_loses_nothing(
    contract: Contract,
    kubectl: ClusterCommand,
    transport: HttpTransport,
    reporting: HttpService,
    tmp_path: Path,
) -> None:
    undisturbed = _killed(contract, transport, reporting, tmp_path, 0, kubectl)
    _run_to_target([undisturbed])
    calls = _transport_of(undisturbed).calls
    cases = [_killed(contract, transport, reporting, tmp_path, at, kubectl) for at in range(1, len(calls) + 1)]
    _run_to_target(cases)
    for at, case in enumerate(cases, start=1):
        assert case.driven.operator.starts == 2, f"the operator of call {at} was not killed once"
        assert case.driven.results == ["Reached"], f"killed at call {at}, {_transport_of(case).calls[at - 1]}"
        assert [each.attempt for each in case.driven.learned] == [0]
        case.driven.operator.store.close()


def _killed(
    contract: Contract,
    transport: HttpTransport,
    reporting: HttpService,
    folder: Path,
    at: int,
    kubectl: ClusterCommand,
) -> Contract:
    """The same job under another name, whose operator is killed at a request, before or after it arrives."""
    manifest = contract.manifest | {"metadata": {"name": f"killed-{at}"}}
    kubectl.apply(manifest, namespace=contract.driven.key.namespace)
    store: Store = open_store(folder / f"{at}.db")
    killing = KillingTransport(transport, at, after=at % 2 == 0)
    operator = InProcessOperator(killing, store, reporting.url, TestClock(), watch_transport=transport)
    key = JobKey(contract.driven.key.namespace, f"killed-{at}")
    return replace(contract, driven=replace(contract.driven, key=key, operator=operator), manifest=manifest)


def _transport_of(case: Contract) -> KillingTransport:
    found = case.driven.operator.transport
    assert isinstance(found, KillingTransport)
    return found


def _run_to_target(cases: list[Contract]) -> None:
    for case in cases:
        case.driven.reconcile()
    running = [case.run() for case in cases]
    for case, pods in zip(cases, running, strict=True):
        case.driven.training_of(pods[0]).reach_target()
        for pod in pods:
            case.driven.kubelet.succeed(pod)
    for case in cases:
        case.await_end()


def _running(pods: list[Object]) -> list[Object]:
    return [
        pod for pod in pods if pod["status"].get("phase") not in ENDED and "deletionTimestamp" not in pod["metadata"]
    ]
