"""Liveness and readiness of the operator over HTTP: signs of life of the watches, and whether the database answers.

A thread of its own asks the database every 2 s, so that no probe waits for the database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from wattloop.errors import OperationError
from wattloop_operator.periodic_thread import PeriodicThread

Check = Callable[[], str]
"""Returns the problem; empty if there is none."""


def create_health_app(live: Mapping[str, Check], ready: Mapping[str, Check]) -> Starlette:
    """The application of /healthz and /readyz.

    A failure of /healthz means: restart the process; of /readyz: it can not do all of its work. Both respond
    with the problem of each check. As at an API server, ``?exclude=NAME`` leaves a check out.

    Args:
        live: The liveness checks by name.
        ready: The readiness checks by name.
    """

    def endpoint(checks: Mapping[str, Check]) -> Callable[[Request], JSONResponse]:
        def respond(request: Request) -> JSONResponse:
            excluded = request.query_params.getlist("exclude")
            results = {name: check() or "ok" for name, check in checks.items() if name not in excluded}
            failed = any(result != "ok" for result in results.values())
            return JSONResponse(results, status_code=503 if failed else 200)

        return respond

    return Starlette(routes=[Route("/healthz", endpoint(live)), Route("/readyz", endpoint(ready))])


class WatchHeartbeat:
    """The last sign of life of each watch: an event, or a resync that found no missed change.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, kinds: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._beats = dict.fromkeys(kinds, clock())

    def beat(self, kind: str) -> None:
        """Record a sign of life."""
        with self._lock:
            self._beats[kind] = self._clock()

    def ages_seconds(self) -> dict[str, float]:
        """Seconds since the last sign of life, by kind."""
        now = self._clock()
        with self._lock:
            return {kind: now - beat for kind, beat in self._beats.items()}


def watches_check(ages_seconds: Callable[[], Mapping[str, float]], max_seconds: float) -> Check:
    """Fails if a watch has given no sign of life for longer than this."""

    def check() -> str:
        old = {kind: age for kind, age in ages_seconds().items() if age > max_seconds}
        return ", ".join(f"no sign of life of the watch of {kind} for {age:.0f} s" for kind, age in sorted(old.items()))

    return check


logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 2.0
# A request to a machine that is gone fails after half a minute; readiness must know before.
MAX_ANSWER_SECONDS = 7.0
STOP_SECONDS = 1.0


class DatabaseCheck(PeriodicThread):
    """Asks a database again and again; a context manager, which starts and ends its thread.

    Args:
        ask: Asks the database once.
        clock: Monotonic seconds.
    """

    def __init__(self, ask: Callable[[], object], name: str, clock: Callable[[], float] = time.monotonic) -> None:
        # A request to a machine that is gone is not waited for.
        super().__init__(self.ask, "database-check", INTERVAL_SECONDS, STOP_SECONDS)
        self._ask = ask
        self._name = name
        self._clock = clock
        self._answered_at = self._answers_since = clock()
        self._failure = ""

    def __enter__(self) -> Self:
        self._answered_at = self._clock()
        return super().__enter__()

    def problem(self) -> str:
        """Why the database cannot be used now; empty if it can."""
        silent = self._clock() - self._answered_at
        if silent > MAX_ANSWER_SECONDS:
            return f"{self._name}: no answer for {silent:.0f} s; check the load of its server and the network between"
        return self._failure

    def answering_seconds(self) -> float:
        """How long the database has answered without an interruption; 0 while it does not answer."""
        return 0.0 if self.problem() else self._clock() - self._answers_since

    def ask(self) -> None:
        """Ask once, and log a change."""
        try:
            self._ask()
        except OperationError as error:
            failure = str(error)
        except Exception as error:  # a restart does not help
            failure = f"{self._name}: unexpected failure: {type(error).__name__}"
            if not self._failure:
                logger.exception("%s: unexpected failure of the check", self._name)
        else:
            failure = ""
        if failure and not self._failure:
            logger.warning("%s; agents and pipelines repeat their reports until it answers", failure)
        elif self._failure and not failure:
            logger.info("%s: the database answers", self._name)
        if failure or self.problem():
            self._answers_since = self._clock()
        self._failure, self._answered_at = failure, self._clock()
