"""The start of an operator waits for an API server or a database that is away, live and not ready.

A process that ended instead would be started again with pauses of up to five minutes, and would miss
the return of the server for so long.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from wattloop import interruption, threads
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop_operator.cluster.api_server import check_reachable
from wattloop_operator.cluster.api_transport import Transport, UnavailableError
from wattloop_operator.http.http_service import PROBE_CONCURRENCY, HttpService
from wattloop_operator.operator_settings import OperatorSettings
from wattloop_operator.store import DatabaseUnavailableError, Store, open_store
from wattloop_operator.store.address import database_url, display_name
from wattloop_operator.telemetry.health import Check, create_health_app

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
REPEATED_LOG_SECONDS = 60.0
# A server that starts rejects requests until it knows its roles, definitions and databases.
SETTLING_SECONDS = 30.0
API_SERVER_REMEDY = "check its address in the kubeconfig (--kubeconfig, --context) and the network between"
DATABASE_REMEDY = "check its address in the URL (WATTLOOP_DATABASE, --database) and the network between"

Result = TypeVar("Result")


def await_api_server(
    settings: OperatorSettings,
    transport: Transport,
    server: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = interruption.sleep,
) -> tuple[str, ...]:
    """Wait until the API server answers; returns the readable namespaces, see `check_reachable`.

    Args:
        settings: The operator's settings.
        transport: Carries requests to the API server.
        server: Its URL, for messages.
        clock: Monotonic seconds.
        sleep: Waits for a number of seconds.

    Raises:
        OperationError: The API server answers, and the operator cannot work with it; or a thread of
            this process has ended.
    """
    wait = _Wait(f"the API server {server}", API_SERVER_REMEDY, clock, sleep)
    return wait.until(lambda: check_reachable(transport, settings.namespaces), settings.health_bind)


def await_database(
    settings: OperatorSettings,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = interruption.sleep,
) -> Store:
    """Wait until the server of the database answers; returns the open store.

    Args:
        settings: The operator's settings.
        clock: Monotonic seconds.
        sleep: Waits for a number of seconds.

    Raises:
        UsageError: The URL is invalid.
        OperationError: The server answers, and the operator cannot use the database, see `open_store`;
            or a thread of this process has ended.
        wattloop.interruption.Interrupted: A signal arrived during the wait.
    """
    name = display_name(database_url(settings.database))
    wait = _Wait(f"the database {name}", DATABASE_REMEDY, clock, sleep)
    return wait.until(lambda: open_store(settings.database), settings.health_bind)


class _Wait:
    """What is known of a server that was away.

    Args:
        server: What it is, with its address, for messages.
        remedy: What to check if the server runs.
        clock: Monotonic seconds.
        sleep: Waits for a number of seconds.
    """

    def __init__(self, server: str, remedy: str, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._server = server
        self._remedy = remedy
        self._clock = clock
        self._sleep = sleep
        self._answered_at: float | None = None
        self._logged_at: float | None = None
        self._problem = ""

    def until(self, attempt: Callable[[], Result], health_bind: Address | None) -> Result:
        """Repeat an attempt until it succeeds; from the first one that fails on, health is served.

        Raises:
            OperationError: See `await_api_server`.
        """
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    result = attempt()
                except (UnavailableError, DatabaseUnavailableError) as error:
                    is_first = not self._problem
                    self._is_away(error)
                    if is_first and health_bind is not None:
                        health = _health_service(health_bind, lambda: self._problem)
                        stack.callback(health.stop)
                        health.start()
                except OperationError as error:
                    if self._is_settled():
                        raise
                    self._problem = str(error)
                else:
                    if self._problem:
                        logger.info("%s answers; the operator starts", self._server)
                    return result
                if ended := threads.problem():
                    raise OperationError(f"a part of the operator has ended: {ended}")
                self._sleep(RETRY_SECONDS)

    def _is_away(self, error: OperationError) -> None:
        """Record, and log once a minute, that the server is away."""
        self._answered_at = None
        self._problem = f"the operator waits for {self._server}: {error}"
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= REPEATED_LOG_SECONDS:
            self._logged_at = now
            remedy = f"it starts when the server answers. If the server runs, {self._remedy}"
            logger.warning("%s; %s", self._problem, remedy)

    def _is_settled(self) -> bool:
        """Whether a rejection is final: the server was not away, or has answered for a while."""
        if not self._problem:
            return True
        now = self._clock()
        self._answered_at = now if self._answered_at is None else self._answered_at
        return now - self._answered_at >= SETTLING_SECONDS


def _health_service(bind: Address, problem: Check) -> HttpService:
    live = {"threads": threads.problem}
    # Not by the name of what is away: the chart's probe leaves the check of a running operator's database out.
    app = create_health_app(live, live | {"start": problem})
    return HttpService("health", app, bind, max_concurrency=PROBE_CONCURRENCY)
