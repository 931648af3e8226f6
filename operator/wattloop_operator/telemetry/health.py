"""Whether the operator is alive and ready: every check with what is wrong, as two small HTTP answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
