"""The API server ends, or etcd forgets the versions of the operator's watches, in the middle of a recurrence."""

import os
import signal
import time
from collections.abc import Iterator

import httpx
import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.control_plane import ControlPlane
from support.control_plane.fixtures import Ended, JobOf, MakeJob, Operators, RecurrencesOf, Train
from support.control_plane.kubelet import Kubelet
from support.control_plane.objects import JOB, list_objects
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.processes import ProcessEndedError
from support.control_plane.training import Training
from support.control_plane.victims import await_reached
from support.control_plane.waiting import LONGEST_WAIT_SECONDS, Object, wait_until
from support.free_ports import free_port
from support.load_aware_clock import LoadAwareClock
from wattloop_operator.domain.names import JobKey, recurrence_name, slot_of_request

pytestmark = pytest.mark.long

# Promised.
NOT_READY_WITHIN_SECONDS = 10.0
# The operator's Lease of 12 s is renewed within 8 s.
LONGER_THAN_THE_LEASE_SECONDS = 20.0
HANGS_SECONDS = 35.0
JOBS = 40


@pytest.fixture
def restarted(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane, whose API server runs again after the test."""
    yield control_plane
    try:
        control_plane.check_alive()
    except ProcessEndedError:
        control_plane.start_api_server()


def attempt_name(key: JobKey, attempt: int = 0) -> str:
    return recurrence_name(key.name, 0, slot_of_request("first"), attempt)


def status_of(operator: OperatorProcess, path: str) -> int:
    operator.check_alive()
    return operator.health(path).status_code


def await_readiness(operator: OperatorProcess, status: int) -> None:
    """Wait until readiness has this status; meanwhile the operator must be alive."""
    within_seconds = LONGEST_WAIT_SECONDS if status == 200 else NOT_READY_WITHIN_SECONDS
    with LoadAwareClock() as clock:
        while status_of(operator, "/readyz") != status:
            assert clock.seconds() < within_seconds, operator.health("/readyz").text
            assert status_of(operator, "/healthz") == 200, operator.health("/healthz").text
            time.sleep(0.1)
        # The answer itself may have come late.
        assert clock.seconds() < within_seconds


def counts_of(job: Object) -> Object:
    counts: Object = (job.get("status") or {}).get("totals") or {}
    return counts


def finish(training: Training, epoch: float = 9.0) -> None:
    answer = training.report(epoch, 0.95, finished=True)
    assert answer is not None


def assert_version_is_gone(admin: client.ApiClient, version: str) -> None:
    """A watch of that version is refused."""
    url = f"/apis/wattloop.dev/v1alpha1/recurringtrainingjobs?watch=true&timeoutSeconds=5&resourceVersion={version}"
    answer = admin.rest_client.pool_manager.request("GET", admin.configuration.host + url)
    assert b'"code":410' in answer.data, answer.data[:1000]


def test_an_operator_whose_versions_etcd_has_compacted_lists_again_and_starts_one_next_attempt(
    operators: Operators,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    recurrences_of: RecurrencesOf,
    job_of: JobOf,
    restarted: ControlPlane,
    kubelet: Kubelet,
    cluster: DynamicClient,
    admin: client.ApiClient,
) -> None:
    operator = operators()()
    key = make_job()
    first = train(key, attempt_name(key))
    first.report(1.0, 0.5)
    version = job_of(key)["metadata"]["resourceVersion"]
    operator.suspend()
    restarted.stop_api_server()
    restarted.start_api_server()
    kubelet.fail(first.pod, exit_code=1)
    ended(key, attempt_name(key))
    restarted.compact_etcd()
    assert_version_is_gone(admin, version)
    operator.resume()
    second = train(key, attempt_name(key, 1))
    await_readiness(operator, 200)
    finish(second)
    kubelet.succeed(second.pod)
    assert await_reached(cluster, key)["totals"]["recurrences"] == 1
    assert [each["spec"]["attempt"] for each in recurrences_of(key)] == [0, 1]
    assert len(list_objects(cluster, JOB, key.namespace, "")) == 2
    assert status_of(operator, "/healthz") == 200


def test_an_operator_outlives_an_api_server_that_is_away_for_longer_than_its_lease(
    operators: Operators,
    make_job: MakeJob,
    train: Train,
    recurrences_of: RecurrencesOf,
    restarted: ControlPlane,
    kubelet: Kubelet,
    cluster: DynamicClient,
) -> None:
    operator = operators()()
    key = make_job()
    training = train(key, attempt_name(key))
    training.report(1.0, 0.5)
    await_readiness(operator, 200)
    restarted.stop_api_server()
    stopped = time.monotonic()
    await_readiness(operator, 503)
    while time.monotonic() < stopped + LONGER_THAN_THE_LEASE_SECONDS:
        assert status_of(operator, "/healthz") == 200, operator.health("/healthz").text
        assert status_of(operator, "/readyz") == 503, operator.health("/readyz").text
        time.sleep(0.2)
    restarted.start_api_server()
    await_readiness(operator, 200)
    finish(training)
    kubelet.succeed(training.pod)
    counts = await_reached(cluster, key)["totals"]
    assert (counts["recurrences"], counts["failed"]) == (1, 0)
    assert len(recurrences_of(key)) == len(list_objects(cluster, JOB, key.namespace, "")) == 1
    assert [line for line in operator.lines() if line["message"].endswith(" leads")][1:] == []


@pytest.mark.exhaustive
def test_an_api_server_that_hangs_for_35_s_while_40_jobs_start_ends_no_replica_and_the_leader_remains_it(
    operators: Operators,
    make_job: MakeJob,
    recurrences_of: RecurrencesOf,
    restarted: ControlPlane,
    cluster: DynamicClient,
    namespace: str,
) -> None:
    leader = operators()()
    leader.await_line(" leads")
    follower = operators("--report-bind=127.0.0.1:0")()
    follower.await_line("waits for the Lease")
    keys = [make_job(f"job-{number}") for number in range(JOBS)]
    # It takes connections and requests, and answers none; when it goes on it carries out those that are given up.
    server = restarted.process_ids["kube-apiserver"]
    os.kill(server, signal.SIGSTOP)
    try:
        stopped = time.monotonic()
        while time.monotonic() < stopped + HANGS_SECONDS:
            assert [status_of(each, "/healthz") for each in (leader, follower)] == [200, 200]
            time.sleep(0.5)
    finally:
        os.kill(server, signal.SIGCONT)
    await_readiness(follower, 200)
    await_readiness(leader, 200)
    wait_until(cluster, JOB, lambda jobs: len(jobs) == JOBS, f"all {JOBS} jobs to have started", namespace=namespace)
    assert [len(recurrences_of(key)) for key in keys] == [1] * JOBS
    lines = [each.lines() for each in (leader, follower)]
    assert [sum(line["message"].endswith(" leads") for line in each) for each in lines] == [1, 0]
    assert [line for each in lines for line in each if line["level"] not in {"INFO", "WARNING"}] == []


def test_a_replica_that_does_not_lead_is_not_ready_while_the_api_server_is_away(
    operators: Operators, restarted: ControlPlane
) -> None:
    operators()().await_line(" leads")
    follower = operators("--report-bind=127.0.0.1:0")()
    follower.await_line("waits for the Lease")
    await_readiness(follower, 200)
    restarted.stop_api_server()
    await_readiness(follower, 503)
    assert "the API server has not answered for" in follower.health("/readyz").json()["API server"]
    restarted.start_api_server()
    # It may lead by now: the Lease has expired. An API server that starts knows no roles, and it waits for them.
    await_readiness(follower, 200)


def test_an_operator_that_starts_while_the_api_server_is_away_waits_and_then_runs_a_recurrence(
    operators: Operators,
    make_job: MakeJob,
    train: Train,
    restarted: ControlPlane,
    kubelet: Kubelet,
    cluster: DynamicClient,
) -> None:
    key = make_job()
    restarted.stop_api_server()
    address = f"127.0.0.1:{free_port()}"
    operator = operators(f"--health-bind={address}")()
    line = operator.await_line("waits for the API server")["message"]
    assert restarted.url in line
    assert "check its address in the kubeconfig" in line
    await_readiness(operator, 503)
    assert "waits for the API server" in operator.health("/readyz").json()["start"]
    assert status_of(operator, "/healthz") == 200
    restarted.start_api_server()
    operator.await_line(" leads")
    assert httpx.get(f"http://{address}/healthz", timeout=60.0).status_code == 200
    await_readiness(operator, 200)
    training = train(key, attempt_name(key))
    finish(training)
    kubelet.succeed(training.pod)
    assert await_reached(cluster, key)["totals"]["recurrences"] == 1
