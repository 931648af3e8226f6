"""PostgreSQL ends in the middle of a recurrence and returns: trainings repeat their reports, and nothing is lost."""

import contextlib

import pytest
from kubernetes.dynamic import DynamicClient

from support.agents.agent_fixture import until
from support.control_plane.fixtures import Ended, MakeJob, Operators, Train
from support.control_plane.kubelet import Kubelet
from support.control_plane.victims import await_reached
from support.databases.postgresql_server import (
    PASSWORD,
    PostgreSqlMissingError,
    PostgreSqlPrograms,
    PostgreSqlServer,
    postgresql_folder,
    postgresql_programs,
    serving_postgresql,
)
from support.free_ports import free_port
from wattloop_operator.domain.names import recurrence_name, slot_of_request
from wattloop_operator.store import open_store


@pytest.fixture(scope="module")
def postgresql() -> PostgreSqlPrograms:
    try:
        return postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; no server was killed")


@pytest.mark.postgres
def test_an_operator_that_starts_while_the_database_is_away_waits_and_then_runs_a_recurrence(
    postgresql: PostgreSqlPrograms,
    operators: Operators,
    make_job: MakeJob,
    train: Train,
    kubelet: Kubelet,
    cluster: DynamicClient,
) -> None:
    with contextlib.ExitStack() as running:
        folder = running.enter_context(postgresql_folder(postgresql))
        url = PostgreSqlServer(folder).url("postgres")
        address = f"127.0.0.1:{free_port()}"
        operator = operators(f"--database={url}", f"--health-bind={address}")()
        running.callback(operator.stop)
        key = make_job()
        line = operator.await_line("waits for the database")["message"]
        assert str(folder).replace("/", "%2F") in line
        until(lambda: operator.health("/readyz?exclude=database").status_code == 503, "the operator waits")
        assert operator.health("/healthz").status_code == 200
        with serving_postgresql(postgresql, folder):
            name = recurrence_name(key.name, 0, slot_of_request("first"), 0)
            training = train(key, name)
            assert training.report(9.0, 0.95, finished=True) is not None
            kubelet.succeed(training.pod)
            await_reached(cluster, key)
            assert PASSWORD not in operator.log_tail()
            operator.stop()


@pytest.mark.postgres
def test_a_training_goes_on_while_the_database_is_away_and_its_next_report_repeats_all(
    postgresql: PostgreSqlPrograms,
    operators: Operators,
    make_job: MakeJob,
    train: Train,
    ended: Ended,
    kubelet: Kubelet,
    cluster: DynamicClient,
) -> None:
    with contextlib.ExitStack() as running:
        folder = running.enter_context(postgresql_folder(postgresql))
        with serving_postgresql(postgresql, folder) as server:
            url = server.new_database()
            operator = operators(f"--database={url}")()
            running.callback(operator.stop)
            key = make_job()
            name = recurrence_name(key.name, 0, slot_of_request("first"), 0)
            training = train(key, name)
            assert training.report(1.0, 0.5) is not None
            server.kill()
            until(lambda: operator.health("/readyz").status_code == 503, "readiness fails")
        assert operator.health("/readyz?exclude=database").status_code == 200, "the Service keeps its endpoints"
        assert operator.health("/healthz").status_code == 200
        # Merged in memory or refused: the next one repeats it.
        training.timeout_seconds = 1.0
        training.report(8.0, 0.8)
        with serving_postgresql(postgresql, folder):
            until(lambda: operator.health("/readyz").status_code == 200, "readiness holds again")
            until(lambda: training.report(9.0, 0.95, finished=True) is not None, "the last report is delivered")
            kubelet.succeed(training.pod)
            ended(key, name)
            await_reached(cluster, key)
            with open_store(url) as store:
                (record,) = store.observations.of_name(key.namespace, key.name)
            operator.stop()
    assert str(record.result) == "Reached"
