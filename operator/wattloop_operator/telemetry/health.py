"""Health."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

Check = Callable[[], str]
"""Says what is wrong; empty: nothing is."""


def create_health_app(live: Mapping[str, Check], ready: Mapping[str, Check]) -> Starlette:
    """The application of /healthz (restart the process where it fails) and /readyz (send no reports there).

    Args:
        live: The checks of liveness, by name.
        ready: The checks of readiness, by name.
    """

    def answer(checks: Mapping[str, Check]) -> Callable[[Request], JSONResponse]:
        def answered(_: Request) -> JSONResponse:
            found = {name: check() or "ok" for name, check in checks.items()}
            failed = any(said != "ok" for said in found.values())
            return JSONResponse(found, status_code=503 if failed else 200)

        return answered

    return Starlette(routes=[Route("/healthz", answer(live)), Route("/readyz", answer(ready))])


def watches_check(ages_seconds: Callable[[], Mapping[str, float]], most_seconds: float) -> Check:
    """Fails where a watch has given no sign of life for too long."""

    def check() -> str:
        old = {kind: age for kind, age in ages_seconds().items() if age > most_seconds}
        return ", ".join(f"no sign of life of the watch of {kind} for {age:.0f} s" for kind, age in sorted(old.items()))

    return check


class WatchHeartbeat:
    """The last sign of life of each watch: an event, or a comparison that found nothing missed.

    Args:
        kinds: The watched kinds.
        clock: Monotonic seconds.
    """

    def __init__(self, kinds: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._beats = dict.fromkeys(kinds, clock())

    def beat(self, kind: str) -> None:
        """Note a sign of life."""
        with self._lock:
            self._beats[kind] = self._clock()

    def ages_seconds(self) -> dict[str, float]:
        """Seconds since the last sign of life, by kind."""
        now = self._clock()
        with self._lock:
            return {kind: now - beat for kind, beat in self._beats.items()}
