"""Readiness follows a database that is killed, returns, or does not answer; liveness does not."""

import argparse
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from kubernetes.client import ApiClient

from support.databases.postgresql_server import PASSWORD, PostgreSqlPrograms, postgresql_folder, serving_postgresql
from support.load_aware_clock import LoadAwareClock
from wattloop.errors import OperationError
from wattloop_operator.factory import Factory
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.operator_settings import SETTINGS, settings_from
from wattloop_operator.store import Store, open_store
from wattloop_operator.telemetry.health import MAX_ANSWER_SECONDS, DatabaseCheck

NOT_READY_WITHIN_SECONDS, READY_WITHIN_SECONDS = 10.0, 60.0
# Between two questions; nobody sets it.
PAUSE = threading.Event()
# A client of its own for each request would cost 20 ms of processor time.
CLIENT = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))


@contextlib.contextmanager
def serving_health(store: Store) -> Iterator[HttpService]:
    """The health service of an operator that does not lead."""
    given: dict[str, str | None] = dict.fromkeys((setting.key for setting in SETTINGS), None)
    given |= dict.fromkeys(("report_bind", "health_bind", "metrics_bind"), "127.0.0.1:0") | {"config": None}

    def no_request(_: object) -> dict[str, Any]:
        raise OperationError("there is no API server")

    factory = Factory(settings_from(argparse.Namespace(**given), {}), store, ApiClient(), no_request)
    reports = factory.report_service()
    health = factory.health_service(reports)
    assert health is not None
    with factory.database, contextlib.ExitStack() as stack:
        for service in (reports, health):
            service.start()
            stack.callback(service.stop)
        yield health


def await_readiness(health: HttpService, status: int) -> str:
    """Wait until readiness has this status; returns what it says of the database. Liveness holds meanwhile."""
    within_seconds = READY_WITHIN_SECONDS if status == 200 else NOT_READY_WITHIN_SECONDS
    with LoadAwareClock() as clock:
        while (answer := CLIENT.get(f"{health.url}/readyz", timeout=60.0)).status_code != status:
            assert clock.seconds() < within_seconds, answer.text
            assert CLIENT.get(f"{health.url}/healthz", timeout=60.0).status_code == 200
            PAUSE.wait(0.05)
        # The answer itself may have come late.
        assert clock.seconds() < within_seconds
    return str(answer.json()["database"])


@pytest.mark.postgres
def test_readiness_fails_within_ten_seconds_of_the_end_of_postgresql_and_holds_when_it_returns(
    programs: PostgreSqlPrograms,
) -> None:
    with contextlib.ExitStack() as running:
        folder = running.enter_context(postgresql_folder(programs))
        with serving_postgresql(programs, folder) as server:
            store = running.enter_context(open_store(server.new_database()))
            health = running.enter_context(serving_health(store))
            assert await_readiness(health, 200) == "ok"
            server.kill()
            problem = await_readiness(health, 503)
        assert "cannot use the database" in problem
        assert "check that the server runs" in problem
        assert PASSWORD not in problem
        assert CLIENT.get(f"{health.url}/healthz").status_code == 200
        assert CLIENT.get(f"{health.url}/readyz?exclude=database").status_code == 200
        with serving_postgresql(programs, folder):
            assert await_readiness(health, 200) == "ok"
            store.close()


def test_a_database_that_does_not_answer_is_a_problem_without_a_wait() -> None:
    now = [0.0]
    check = DatabaseCheck(lambda: None, "postgresql://db/wattloop", clock=lambda: now[0])
    now[0] = MAX_ANSWER_SECONDS
    assert check.problem() == ""
    now[0] += 1.0
    assert check.problem().startswith("postgresql://db/wattloop: no answer for 8 s; check the load of its server")
    check.ask()
    assert check.problem() == ""


def test_the_time_of_an_outage_is_none_in_which_the_database_has_answered() -> None:
    now, failures = [0.0], [False]

    def ask() -> None:
        if failures[0]:
            raise OperationError("db: away")

    check = DatabaseCheck(ask, "db", clock=lambda: now[0])
    found = []
    for now[0], failures[0] in ((2.0, False), (4.0, True), (6.0, True), (8.0, False), (10.0, False)):
        check.ask()
        found.append(check.answering_seconds())
    assert found == [2, 0, 0, 0, 2]
    # A question without an answer: the outage may have begun.
    now[0] = 60.0
    assert check.answering_seconds() == 0
    check.ask()
    now[0] = 61.0
    assert check.answering_seconds() == 1


def test_only_the_changes_of_a_database_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    outcomes: list[Exception | None] = [None, OperationError("db: away"), OperationError("db: away"), None, OSError()]

    def ask() -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    check = DatabaseCheck(ask, "db")
    problems = []
    while outcomes:
        check.ask()
        problems.append(check.problem())
    assert problems == ["", "db: away", "db: away", "", "db: unexpected failure: OSError"]
    assert [each.getMessage() for each in caplog.records] == [
        "db: away; agents and pipelines repeat their reports until it answers",
        "db: the database answers",
        "db: unexpected failure of the check",
        "db: unexpected failure: OSError; agents and pipelines repeat their reports until it answers",
    ]
