"""One contract for all kinds of workload, on their real controllers, with the manifests of examples/workloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob
from support.control_plane.example_job import PODS, ExampleJob, example_job, running
from support.control_plane.in_process_operator import InProcessOperator, KillingTransport, TestClock
from support.control_plane.waiting import wait_until
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.domain.names import RECURRENCE_LABEL, JobKey
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.store import Store, open_store


@pytest.fixture(params=PODS)
def contract(
    request: pytest.FixtureRequest, kind_controllers: set[str], kubectl: ClusterCommand, driven: DrivenJob
) -> ExampleJob:
    """The manifest of a kind, applied as it stands, but it runs on request."""
    if request.param not in kind_controllers:
        pytest.skip(f"the controller of {request.param} is not built: make programs builds it, or says why it cannot")
    made = example_job(request.param, driven)
    kubectl.apply(made.manifest, namespace=driven.key.namespace)
    made.driven.reconcile()
    return made


def test_its_pods_report_and_reach_the_target(contract: ExampleJob) -> None:
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


def test_a_crash_counts_and_the_next_attempt_runs_alone(contract: ExampleJob) -> None:
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
        condition=lambda found: running(found) if len(running(found)) == len(second) else None,
        what="the pods of the second attempt alone",
    )
    assert {each["metadata"]["name"] for each in active} == {each["metadata"]["name"] for each in second}


def test_a_preempted_pod_is_a_disruption(contract: ExampleJob) -> None:
    pods = contract.run()
    contract.driven.kubelet.preempt(pods[-1])
    contract.await_end()
    assert contract.driven.results == ["Disrupted", None]
    assert contract.driven.learned == ()


def test_a_workload_that_a_queue_suspends_is_disrupted_and_deleted(
    contract: ExampleJob, kubectl: ClusterCommand
) -> None:
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
        condition=lambda pods: not running(pods),
        what=f"the pods of {name} to be taken",
    )
    contract.driven.reconcile()
    assert contract.driven.results == ["Disrupted", None]
    contract.driven.reconcile()
    assert contract.workloads() == [contract.driven.name_of(1)]


def test_a_workload_that_is_deleted_by_hand_is_cancelled_and_not_started_again(
    contract: ExampleJob, kubectl: ClusterCommand
) -> None:
    contract.run()
    kubectl("delete", contract.kind[1].lower(), contract.driven.name_of(), namespace=contract.driven.key.namespace)
    contract.driven.reconcile()
    assert contract.driven.results == ["Cancelled"]
    contract.driven.reconcile()
    assert contract.workloads() == []


# What a Job's operator survives, attacks/test_kills.py shows at each request.
@pytest.mark.parametrize("contract", [kind for kind in PODS if kind != "job"], indirect=True)
@pytest.mark.timeout(900)
def test_an_operator_killed_at_any_request_runs_nothing_twice_and_loses_nothing(
    contract: ExampleJob,
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
    contract: ExampleJob,
    transport: HttpTransport,
    reporting: HttpService,
    folder: Path,
    at: int,
    kubectl: ClusterCommand,
) -> ExampleJob:
    """The same job under another name, whose operator is killed at a request, before or after it arrives."""
    manifest = contract.manifest | {"metadata": {"name": f"killed-{at}"}}
    kubectl.apply(manifest, namespace=contract.driven.key.namespace)
    store: Store = open_store(folder / f"{at}.db")
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
        for pod in pods:
            case.driven.kubelet.succeed(pod)
    for case in cases:
        case.await_end()
