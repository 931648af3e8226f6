"""An operator that is started while the API server or the database is away waits for it, and says why."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import httpx
import pytest

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
from support.test_sets.parameters import exhaustive_after
from wattloop.errors import OperationError
from wattloop_operator.cluster.api_transport import Request, StatusError, UnavailableError
from wattloop_operator.operator_settings import SETTINGS, OperatorSettings, settings_from
from wattloop_operator.start_up_wait import SETTLING_SECONDS, await_api_server, await_database

SERVER = "https://10.96.0.1:443"
# A client of its own for each request would cost 20 ms of processor time.
CLIENT = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))
KINDS = ("recurringtrainingjobs", "trainingrecurrences", "frequencyplans", "gpupowerpolicies")
RESOURCES = {"resources": [{"name": kind} for kind in KINDS]}


class Wait(Protocol):
    """Waits for a server in virtual time; returns the readable namespaces."""

    def __call__(self, server: ApiServer, sleep: Callable[[float], None] | None = None) -> tuple[str, ...]: ...


class ApiServer:
    """A transport to a server that is in each of these states for as many seconds, and then answers.

    Args:
        states: The states.
        path: Part of the paths to which they apply.
    """

    def __init__(self, *states: tuple[str, float], path: str = "/") -> None:
        self.now = 0.0
        self._states = states
        self._path = path

    def __call__(self, request: Request) -> dict[str, Any]:
        if self._path not in request.path:
            return RESOURCES
        left = self.now
        for state, seconds in self._states:
            if left < seconds:
                if state == "away":
                    raise UnavailableError(f"{request.path}: connection refused")
                raise StatusError(request, 403, "Forbidden", "its roles are not known yet")
            left -= seconds
        return RESOURCES

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def settings() -> OperatorSettings:
    given: dict[str, str | None] = dict.fromkeys((setting.key for setting in SETTINGS), None)
    given |= {"config": None, "health_bind": f"127.0.0.1:{free_port()}", "namespaces": "team"}
    return settings_from(argparse.Namespace(**given), {})


@pytest.fixture
def wait(settings: OperatorSettings) -> Iterator[Wait]:
    """Afterwards its health service is gone."""

    def run(server: ApiServer, sleep: Callable[[float], None] | None = None) -> tuple[str, ...]:
        return await_api_server(settings, server, SERVER, clock=lambda: server.now, sleep=sleep or server.sleep)

    yield run
    with pytest.raises(httpx.ConnectError):
        CLIENT.get(f"http://{settings.health_bind}/healthz")


def test_an_operator_waits_live_and_not_ready_for_an_api_server_that_is_away(
    wait: Wait, settings: OperatorSettings
) -> None:
    server = ApiServer(("away", 2.0))
    answers: list[tuple[int, int, str]] = []

    def sleep(seconds: float) -> None:
        live, ready = (CLIENT.get(f"http://{settings.health_bind}/{path}") for path in ("healthz", "readyz"))
        answers.append((live.status_code, ready.status_code, ready.json()["start"]))
        server.sleep(seconds)

    assert wait(server, sleep) == ("team",)
    problem = f"the operator waits for the API server {SERVER}: /apis/wattloop.dev/v1alpha1: connection refused"
    assert answers == [(200, 503, problem)] * 2


def test_the_wait_is_logged_once_a_minute_with_the_next_step(wait: Wait, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    wait(ApiServer(("away", 100.0)))
    lines = [each.getMessage() for each in caplog.records if SERVER in each.getMessage()]
    assert len(lines) == 3
    assert all("check its address in the kubeconfig (--kubeconfig, --context)" in line for line in lines[:2])
    assert lines[2] == f"the API server {SERVER} answers; the operator starts"


def test_a_rejection_by_a_server_that_was_not_away_ends_the_operator_at_once(wait: Wait) -> None:
    server = ApiServer(("rejects", 1.0))
    with pytest.raises(OperationError, match="the API server rejects the operator"):
        wait(server)
    assert server.now == 0.0


def test_a_server_that_starts_may_reject_the_operator_for_half_a_minute(wait: Wait) -> None:
    assert wait(ApiServer(("away", 5.0), ("rejects", SETTLING_SECONDS))) == ("team",)
    with pytest.raises(OperationError, match="its roles are not known yet"):
        wait(ApiServer(("away", 5.0), ("rejects", SETTLING_SECONDS + 1.0)))


def test_a_server_that_leaves_again_while_namespaces_are_checked_is_awaited(wait: Wait) -> None:
    assert wait(ApiServer(("away", 5.0), path="/namespaces/")) == ("team",)


class DatabaseStart:
    """The start of an operator in virtual time, whose PostgreSQL starts later.

    Args:
        settings: The operator's settings, without its database.
        after_seconds: When the server starts.
    """

    def __init__(self, settings: OperatorSettings, after_seconds: float = 0.0) -> None:
        self.now = 0.0
        # Liveness, readiness as the chart's probe asks for it, and why the operator is not ready.
        self.answers: list[tuple[int, int, str]] = []
        self._settings = settings
        self._after_seconds = after_seconds

    def open(self, programs: PostgreSqlPrograms, database: str = "postgres", password: str = PASSWORD) -> None:
        """Wait for the database, and use it."""
        with postgresql_folder(programs) as folder, contextlib.ExitStack() as running:
            settings = dataclasses.replace(
                self._settings, database=PostgreSqlServer(folder).url(database, password=password)
            )

            def start_server() -> None:
                if self.now == self._after_seconds:
                    running.enter_context(serving_postgresql(programs, folder))

            def sleep(seconds: float) -> None:
                health = f"http://{settings.health_bind}"
                live, ready = (CLIENT.get(f"{health}/{path}") for path in ("healthz", "readyz?exclude=database"))
                self.answers.append((live.status_code, ready.status_code, ready.json()["start"]))
                self.now += seconds
                start_server()

            start_server()
            with await_database(settings, clock=lambda: self.now, sleep=sleep) as store:
                store.check()


@pytest.fixture(scope="module")
def postgresql() -> PostgreSqlPrograms:
    try:
        return postgresql_programs()
    except PostgreSqlMissingError as error:
        pytest.skip(f"{error}; no operator waited for a server")


@pytest.mark.postgres
def test_an_operator_waits_live_and_not_ready_for_a_database_that_is_away(
    postgresql: PostgreSqlPrograms, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    start = DatabaseStart(settings, after_seconds=61.0)
    start.open(postgresql)
    assert len(start.answers) == 61
    assert {(live, ready) for live, ready, _ in start.answers} == {(200, 503)}
    assert "No such file or directory" in start.answers[0][2]
    lines = [each.getMessage() for each in caplog.records if "the database postgresql://" in each.getMessage()]
    assert len(lines) == 3
    assert all("waits for the database postgresql://wattloop:***@/postgres?host=" in line for line in lines[:2])
    assert all("check its address in the URL (WATTLOOP_DATABASE, --database)" in line for line in lines[:2])
    assert lines[2].endswith(" answers; the operator starts")
    assert PASSWORD not in caplog.text + str(start.answers)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("database", "password", "remedy"),
    exhaustive_after(
        [
            ("postgres", "wrong-password", "check the user and the password in the URL"),
            # The end of a wait for a server that lacks the database is the same error.
            ("missing", PASSWORD, r"create it \(createdb\), or name another one in the URL"),
        ]
    ),
)
def test_a_wrong_password_or_a_missing_database_ends_the_operator_with_a_remedy(
    database: str, password: str, remedy: str, postgresql: PostgreSqlPrograms, settings: OperatorSettings
) -> None:
    start = DatabaseStart(settings)
    with pytest.raises(OperationError, match=remedy):
        start.open(postgresql, database, password)
    assert start.answers == []


@pytest.mark.postgres
def test_a_server_that_has_been_away_may_lack_the_database_for_half_a_minute(
    postgresql: PostgreSqlPrograms, settings: OperatorSettings
) -> None:
    start = DatabaseStart(settings, after_seconds=2.0)
    with pytest.raises(OperationError, match="create it"):
        start.open(postgresql, "missing")
    assert start.now == 2.0 + SETTLING_SECONDS
