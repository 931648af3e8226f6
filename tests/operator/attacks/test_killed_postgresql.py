"""PostgreSQL that is killed, or cut off, while the operator commits: nothing acknowledged is lost, nothing is twice."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.agents.agent_fixture import until
from support.databases.postgresql_server import PostgreSqlPrograms, postgresql_folder, serving_postgresql
from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import NEW_STATE
from wattloop.errors import OperationError
from wattloop.pipeline.plan_messages import RankReport
from wattloop_operator.reconcile.pipeline.pipeline_state import JobPlan, PipelineState
from wattloop_operator.reconcile.pipeline.registrations import Registrar
from wattloop_operator.reconcile.pipeline.reports import with_report
from wattloop_operator.store import ObservationRecord, Store, open_store

Make = Callable[..., ObservationRecord]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
pytestmark = pytest.mark.postgres


@pytest.fixture
def folder(programs: PostgreSqlPrograms) -> Iterator[Path]:
    with postgresql_folder(programs) as made:
        yield made


def record_with_retries(
    store: Store, record: ObservationRecord, failures: list[OperationError], stopped: threading.Event
) -> None:
    """Record as the reconciler does, which tries again until it has an answer."""
    while True:
        try:
            store.observations.record(record)
        except OperationError as error:
            assert "record the observation" in str(error)  # noqa: PT017
            failures.append(error)
            # A server that starts refuses a connection at once.
            if stopped.wait(0.02):
                raise
        else:
            return


def test_observations_committed_while_the_server_is_killed_are_there_once(
    programs: PostgreSqlPrograms, folder: Path, record: Make
) -> None:
    recorded: list[int] = []
    failures: list[list[OperationError]] = [[] for _ in range(4)]
    numbers = itertools.count()
    stopped = threading.Event()

    def record_until_one_fails(store: Store, own: list[OperationError]) -> None:
        # However fast the server is, each thread records when it is killed.
        while not own:
            number = next(numbers)
            record_with_retries(store, record(number), own, stopped)
            recorded.append(number)

    with ExitStack() as running:
        with serving_postgresql(programs, folder, durable=True) as server:
            store = running.enter_context(open_store(server.new_database()))
            threads = running.enter_context(ThreadPoolExecutor(len(failures)))
            running.callback(stopped.set)
            calls = [threads.submit(record_until_one_fails, store, own) for own in failures]
            until(lambda: len(recorded) >= 50, "observations are recorded")
            server.kill()
            until(lambda: all(failures), "each thread has lost the server")
        with serving_postgresql(programs, folder, durable=True):
            for call in calls:
                call.result()
            stored = [each.recurrence for each in store.observations.of_job(record().job_uid)]
            store.close()
    assert stored == sorted(recorded) == list(range(len(recorded)))


def test_a_pipeline_whose_server_is_killed_continues_from_its_last_commit(
    programs: PostgreSqlPrograms, folder: Path
) -> None:
    registration = rank_registration(0)

    def registered(state: PipelineState) -> PipelineState:
        registrar = Registrar(state, NOW)
        registrar.merge(registration)
        return registrar.state

    def reported(sequence: int) -> Callable[[PipelineState], PipelineState]:
        report = RankReport(registration.process, sequence, 0, sequence)
        return lambda state: with_report(state, 0, report, NOW)

    def unchanged(state: PipelineState) -> PipelineState:
        return state

    with serving_postgresql(programs, folder, durable=True) as server:
        store = open_store(server.new_database())
        known = store.pipelines.change(NEW_STATE, None, registered, unchanged, NOW)
        known = store.pipelines.change(NEW_STATE, known, reported(1), unchanged, NOW)

        def killed_in_the_transaction(state: PipelineState) -> PipelineState:
            server.kill()
            return replace(state, job_plan=JobPlan(enabled=False))

        with pytest.raises(OperationError, match=r"cannot change the pipeline of job 0c3b2d9e.*check that the server"):
            store.pipelines.change(NEW_STATE, known, reported(2), killed_in_the_transaction, NOW)
    with serving_postgresql(programs, folder, durable=True), store:
        assert store.pipelines.read(NEW_STATE.key) == known.state
        after = store.pipelines.change(NEW_STATE, known, reported(2), unchanged, NOW)
        assert after.revision == known.revision + 1
        # The rank repeats a report whose answer it did not get.
        assert store.pipelines.change(NEW_STATE, after, reported(2), unchanged, NOW).revision == after.revision
        assert store.pipelines.read(NEW_STATE.key) == after.state
