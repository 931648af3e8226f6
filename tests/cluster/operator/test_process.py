"""The operator as a program, with the chart's rights: the example, two replicas, kills."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from kubernetes.dynamic import DynamicClient

from support.agents.agent_fixture import until
from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand
from support.control_plane.job_manifest import job_manifest
from support.control_plane.objects import EVENT, RECURRING_TRAINING_JOB
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.pod_runner import PodRunner
from support.control_plane.victims import await_reached, reached_of
from support.control_plane.waiting import Object, wait_until
from support.free_ports import free_port
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.domain.names import JobKey
from wattloop_operator.store import open_store

pytestmark = pytest.mark.long

EXAMPLE = yaml.safe_load((Path(__file__).parents[3] / "examples" / "digits" / "job.yaml").read_text(encoding="utf-8"))
StartOperator = Callable[..., OperatorProcess]


@pytest.fixture
def start_operator(
    operator_kubeconfig: Path, release: Release, namespace: str, tmp_path: Path
) -> Iterator[StartOperator]:
    """Starts operators that share a Lease of this test."""
    started: list[OperatorProcess] = []

    def start(name: str = "operator", *, report_port: int = 0, options: tuple[str, ...] = ()) -> OperatorProcess:
        database = f"sqlite:///{tmp_path}/wattloop.db"
        lease = (release.namespace, namespace)
        process = OperatorProcess(
            operator_kubeconfig,
            tmp_path,
            database,
            lease,
            name=name,
            report_port=report_port,
            options=options,
            preloaded=False,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.stop()


def once(request: str) -> Object:
    """The example without its schedule, which runs for a request."""
    spec = {name: value for name, value in EXAMPLE["spec"].items() if name != "schedule"}
    return EXAMPLE | {"spec": spec | {"runRequest": request}}


def await_total(cluster: DynamicClient, namespace: str, total: int) -> list[Object]:
    """The jobs of a namespace once this number of their recurrences has reached the target."""
    found: list[Object] = wait_until(
        cluster,
        RECURRING_TRAINING_JOB,
        lambda jobs: jobs if sum(map(reached_of, jobs)) >= total else None,
        f"{total} recurrences to reach their target",
        namespace=namespace,
        timeout_seconds=500,
    )
    return found


def await_deletion_events(cluster: DynamicClient, namespace: str) -> list[Object]:
    """The Events that recurrences were deleted; at least one."""
    found: list[Object] = wait_until(
        cluster,
        EVENT,
        lambda events: [each for each in events if each.get("reason") == "RecurrenceDeleted"] or None,
        "a RecurrenceDeleted",
        namespace=namespace,
    )
    return found


def test_the_example_runs_and_kubectl_shows_its_cost(
    start_operator: StartOperator,
    pod_runner: PodRunner,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    namespace: str,
) -> None:
    operator = start_operator()
    for request in range(1, 4):
        kubectl.apply(EXAMPLE | {"spec": EXAMPLE["spec"] | {"runRequest": f"run {request}"}}, namespace=namespace)
        await_reached(cluster, JobKey(namespace, "digits"), request)
    header, row = kubectl("get", "rtj", namespace=namespace).splitlines()
    columns = ("STATE", "COST SAVED", "NEXT RUN")
    assert [column for column in columns if column not in header] == []
    assert max(len(header), len(row)) <= 80
    assert row.split()[:2] == ["digits", "Waiting"]
    assert "T02:00:00Z" in row or "T01:00:00Z" in row, "the next run is at 3 in Paris"
    recurrences = kubectl("get", "trec", namespace=namespace).splitlines()[1:]
    assert len(recurrences) == 3
    assert all("Reached" in each for each in recurrences)
    assert [each.split()[1] for each in recurrences] == ["0", "1", "2"]
    assert operator.health("/readyz").status_code == 200
    assert operator.health("/healthz").status_code == 200
    url = f"{operator.url_of('metrics')}/metrics"
    counted = f'wattloop_job_recurrences_total{{job="digits",namespace="{namespace}",reached="true"}} 3.0'
    # The metrics are those of the job that the operator's watch has seen last.
    until(lambda: counted in httpx.get(url, timeout=60.0).text, "the metrics count the recurrences")
    assert "wattloop_operator_is_leader 1.0" in httpx.get(url, timeout=60.0).text
    deleted = recurrences[1].split()[0].removeprefix("trainingrecurrence.wattloop.dev/")
    kubectl("delete", "trec", deleted, namespace=namespace)
    (event,) = await_deletion_events(cluster, namespace)
    assert event["message"].startswith(f"{namespace}/digits: recurrence 1 ({deleted}) was deleted, and not by a")
    kubectl("delete", "rtj", "digits", "--cascade=foreground", namespace=namespace)
    assert len(await_deletion_events(cluster, namespace)) == 1
    operator.stop()
    assert operator.exit_code == 130


def test_one_of_two_operators_leads_and_the_other_takes_over(
    start_operator: StartOperator,
    pod_runner: PodRunner,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    namespace: str,
) -> None:
    first = start_operator("first")
    first.await_line(" leads")
    second = start_operator("second")
    second.await_line("waits for the Lease")
    assert second.health("/readyz").status_code == 200, "it receives reports"
    kubectl.apply(once("first"), namespace=namespace)
    await_reached(cluster, JobKey(namespace, "digits"))
    assert not any(" leads" in line["message"] for line in second.lines())
    first.kill()
    second.await_line(" leads")
    kubectl.apply(once("another"), namespace=namespace)
    await_reached(cluster, JobKey(namespace, "digits"), 2)
    assert len(kubectl.json("get", "trec", namespace=namespace)["items"]) == 2


def test_a_suspended_operator_does_not_act_after_it_has_lost_the_lead(
    start_operator: StartOperator,
    pod_runner: PodRunner,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    namespace: str,
) -> None:
    first = start_operator("first")
    first.await_line(" leads")
    second = start_operator("second")
    second.await_line("waits for the Lease")
    first.suspend()
    second.await_line(" leads")
    kubectl.apply(once("first"), namespace=namespace)
    await_reached(cluster, JobKey(namespace, "digits"))
    first.resume()
    assert first.await_exit() == 1
    assert "another operator may lead now" in first.log_tail()
    assert second.health("/healthz").status_code == 200


def test_an_operator_without_rights_to_its_lease_ends_with_an_error(
    operator_kubeconfig: Path, tmp_path: Path, namespace: str
) -> None:
    operator = OperatorProcess(operator_kubeconfig, tmp_path, f"sqlite:///{tmp_path}/x.db", (namespace, "none"))
    assert operator.await_exit() == 1
    assert f"the Lease {namespace}/none cannot be used" in operator.log_tail()


# The jobs that run at each kill are what is tested; a kill at more recurrences of each proves the same.
@pytest.mark.parametrize(("jobs", "each"), exhaustive_after([(5, 2), (10, 3)]))
@pytest.mark.timeout(900)
def test_an_operator_killed_and_restarted_among_many_recurrences_loses_none(
    jobs: int,
    each: int,
    start_operator: StartOperator,
    pod_runner: PodRunner,
    kubectl: ClusterCommand,
    cluster: DynamicClient,
    namespace: str,
    tmp_path: Path,
) -> None:
    port = free_port()
    operator = start_operator(report_port=port)
    again = {"continuous": True, "maxRecurrences": each, "runRequest": ""}
    manifests = [job_manifest(f"job-{number}", **again) for number in range(jobs)]
    kubectl.apply(*manifests, namespace=namespace)
    for share in (0.2, 0.5, 0.8):
        await_total(cluster, namespace, round(share * jobs * each))
        operator.kill()
        operator = start_operator(report_port=port)
    done = await_total(cluster, namespace, jobs * each)
    operator.stop()
    for job in done:
        counts = job["status"]["totals"]
        assert (counts["recurrences"], counts["failed"], counts["missed"]) == (each, 0, 0)
    with open_store(tmp_path / "wattloop.db") as store:
        records = [
            record for number in range(jobs) for record in store.observations.of_name(namespace, f"job-{number}")
        ]
    assert len(records) == len({(record.job_name, record.recurrence) for record in records}) == jobs * each
    assert len({record.recurrence_name for record in records}) == jobs * each
    assert {record.result for record in records} == {"Reached"}
    assert pod_runner.pods == jobs * each


def test_an_operator_without_jobs_loads_no_numerical_library(start_operator: StartOperator, namespace: str) -> None:
    # Namespaces of other tests may still exist, with their jobs.
    operator = start_operator(options=("--namespaces", namespace))
    operator.await_line(" leads")
    assert operator.health("/readyz").status_code == 200
    mapped = Path(f"/proc/{operator.pid}/maps").read_text(encoding="utf-8")
    assert "/pydantic_core/" in mapped
    libraries = ("numpy", "scipy", "matplotlib", "PIL", "cryptography")
    assert [name for name in libraries if f"/{name}/" in mapped] == []
