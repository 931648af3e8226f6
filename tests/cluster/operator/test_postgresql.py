"""Two replicas with one PostgreSQL, whose URL is in the environment, from a secret, as in the chart."""

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.chart.rendering import at, chosen, nested, render
from support.control_plane.chart import Release
from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import MakeJob
from support.control_plane.kubelet import Kubelet
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.pod_runner import PodRunner
from support.control_plane.training import TokenOfPod
from support.control_plane.victims import await_reached
from support.databases.postgresql_server import PostgreSqlMissingError, postgresql_programs, running_postgresql
from wattloop_operator.store import open_store


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    """The URL of an empty database of a real server."""
    try:
        programs = postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; nothing was tested on PostgreSQL")
    with running_postgresql(programs) as server:
        yield server.new_database()


@pytest.fixture
def variables(
    database_url: str, kubectl: ClusterCommand, helm: ClusterCommand, namespace: str, tmp_path: Path
) -> dict[str, str]:
    """The environment of the operator's container from the user's secret, as a kubelet sets it."""
    kubectl("create", "secret", "generic", "database", f"--from-literal=uri={database_url}", namespace=namespace)
    values = nested(
        "database",
        {"type": "postgresql", "postgresql": {"secretName": "database", "secretKey": "uri"}},
        {"operator.replicas": 2},
    )
    (deployment,) = chosen(render(helm, values, tmp_path), "Deployment")
    variable = at(deployment, "spec.template.spec.containers[operator].env[WATTLOOP_DATABASE]")
    reference = variable["valueFrom"]["secretKeyRef"]
    data = kubectl.json("get", "secret", reference["name"], namespace=namespace)["data"]
    return {variable["name"]: base64.b64decode(data[reference["key"]]).decode()}


@pytest.mark.postgres
def test_a_second_replica_continues_with_the_first_ones_observations(
    variables: dict[str, str],
    operator_kubeconfig: Path,
    release: Release,
    namespace: str,
    core: client.CoreV1Api,
    kubelet: Kubelet,
    token_of_pod: TokenOfPod,
    cluster: DynamicClient,
    make_job: MakeJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    lease = (release.namespace, namespace)
    with contextlib.ExitStack() as running:

        def start(name: str) -> OperatorProcess:
            process = OperatorProcess(operator_kubeconfig, tmp_path, None, lease, name=name)
            running.callback(process.stop)
            return process

        first = start("first")
        first.await_line(" leads")
        second = start("second")
        second.await_line("waits for the Lease")
        with PodRunner(core, kubelet, token_of_pod, tmp_path, namespace):
            key = make_job()
            await_reached(cluster, key, 1)
            first.kill()
            second.await_line(" leads")
            make_job(runRequest="second")
            await_reached(cluster, key, 2)
        (url,) = variables.values()
        with open_store(url) as store:
            records = store.observations.of_name(namespace, key.name)
        assert [(record.recurrence, str(record.result)) for record in records] == [(0, "Reached"), (1, "Reached")]
        password = url.partition(":")[2].partition(":")[2].partition("@")[0]
        assert password
        assert password not in first.log_tail() + second.log_tail()
