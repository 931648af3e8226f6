"""The start of an operator waits for an API server that is away, live and not ready.

A process that ended instead would be started again with pauses of up to five minutes, and would miss
the return of the server for so long.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

from wattloop import threads
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop_operator.cluster.api_server import check_reachable
from wattloop_operator.cluster.api_transport import Transport, UnavailableError
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.operator_settings import Settings
from wattloop_operator.telemetry.health import Check, create_health_app

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
REPEATED_LOG_SECONDS = 60.0
# An API server that starts rejects requests until it knows its roles and definitions.
SETTLING_SECONDS = 30.0


def await_api_server(
    settings: Settings,
    transport: Transport,
    server: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
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
    wait = _Wait(server, clock)
    with contextlib.ExitStack() as stack:
        while True:
            try:
                readable = check_reachable(transport, settings.namespaces)
            except UnavailableError as error:
                is_first = not wait.problem
                wait.is_away(error)
                if is_first and settings.health_bind is not None:
                    health = _health_service(settings.health_bind, lambda: wait.problem)
                    stack.callback(health.stop)
                    health.start()
            except OperationError as error:
                if wait.is_settled():
                    raise
                wait.problem = str(error)
            else:
                if wait.problem:
                    logger.info("the API server %s answers; the operator starts", server)
                return readable
            if ended := threads.problem():
                raise OperationError(f"a part of the operator has ended: {ended}")
            sleep(RETRY_SECONDS)


class _Wait:
    """What is known of an API server that was away.

    Args:
        server: Its URL, for messages.
        clock: Monotonic seconds.

    Attributes:
        problem: Why the operator waits; empty if it does not.
    """

    def __init__(self, server: str, clock: Callable[[], float]) -> None:
        self._server = server
        self._clock = clock
        self._answered_at: float | None = None
        self._logged_at: float | None = None
        self.problem = ""

    def is_away(self, error: UnavailableError) -> None:
        """Record, and log once a minute, that the server is away."""
        self._answered_at = None
        self.problem = f"the operator waits for the API server {self._server}: {error}"
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= REPEATED_LOG_SECONDS:
            self._logged_at = now
            logger.warning(
                "%s; it starts when the server answers. If the server runs, check its address in the kubeconfig "
                "(--kubeconfig, --context) and the network between",
                self.problem,
            )

    def is_settled(self) -> bool:
        """Whether a rejection is final: the server was not away, or has answered for a while."""
        if not self.problem:
            return True
        now = self._clock()
        self._answered_at = now if self._answered_at is None else self._answered_at
        return now - self._answered_at >= SETTLING_SECONDS


def _health_service(bind: Address, problem: Check) -> HttpService:
    live = {"threads": threads.problem}
    return HttpService("health", create_health_app(live, live | {"API server": problem}), bind)
