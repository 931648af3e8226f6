"""Liveness and readiness of the operator over HTTP, and the last sign of life of each watch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

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
        kinds: The watched kinds.
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
