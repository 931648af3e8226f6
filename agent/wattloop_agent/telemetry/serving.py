"""The agent's HTTP endpoints: Prometheus metrics, energy events, liveness and readiness."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, make_wsgi_app

from wattloop import threads
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop_agent.telemetry import energy_events
from wattloop_agent.telemetry.bounded_server import (
    BoundedHandler,
    BoundedServer,
    BoundedServerOnV6,
    ConnectionLimiter,
)
from wattloop_agent.telemetry.energy_events import EnergyEvents

METRICS_PATHS = ("/metrics", "/")
HEALTH_PATH, READY_PATH = "/healthz", "/readyz"
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def serve(
    address: Address,
    registry: CollectorRegistry,
    events: EnergyEvents,
    limiter: ConnectionLimiter | None = None,
    *,
    not_ready: Callable[[], str] = str,
) -> Callable[[], None]:
    """Serve the endpoints until the returned function is called.

    `not_ready` says why the agent cannot do its work, although a restart does not help; empty if it can.

    Raises:
        OperationError: Listening on the address failed.
    """

    class Handler(_Handler):
        pass

    Handler.exposition, Handler.events, Handler.not_ready = _Exposition(registry), events, staticmethod(not_ready)
    kind = BoundedServerOnV6 if ":" in address.host else BoundedServer
    try:
        server = kind((address.host, address.port), Handler, ConnectionLimiter() if limiter is None else limiter)
    except OSError as error:
        raise OperationError(f"metrics at {address.host}:{address.port}: {error.strerror or error}") from error
    thread = WatchedThread(server.serve_forever, "metrics")
    thread.start()

    def stop() -> None:
        thread.release()
        events.close()
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class _Exposition:
    """Renders the metrics for one client at a time, which bounds the use of the processor."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._app = make_wsgi_app(registry)
        self._rendering = threading.Lock()

    def render(self, query: str, accept: str, encodings: str) -> tuple[dict[str, str], bytes]:
        headers: list[tuple[str, str]] = []

        def start(_: str, given: Iterable[tuple[str, str]]) -> None:
            headers.extend(given)

        environment = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": METRICS_PATHS[0],
            "QUERY_STRING": query,
            "HTTP_ACCEPT": accept,
            "HTTP_ACCEPT_ENCODING": encodings,
        }
        with self._rendering:
            body = b"".join(self._app(environment, start))
        return dict(headers), body


class _Handler(BoundedHandler):
    exposition: _Exposition
    events: EnergyEvents
    not_ready: Callable[[], str]

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self.server.limiter.request_received(self.connection, time.monotonic())
        address = urlsplit(self.path)
        if address.path == energy_events.PATH:
            self.events.stream(self.path, self.client_address[0], self)
        elif address.path in METRICS_PATHS:
            accepted = (self.headers.get(name, "") for name in ("Accept", "Accept-Encoding"))
            headers, body = self.exposition.render(address.query, *accepted)
            self._respond(200, headers, body)
        elif address.path in {HEALTH_PATH, READY_PATH}:
            problem = threads.problem() or (self.not_ready() if address.path == READY_PATH else "")
            self._respond(503 if problem else 200, _TEXT, f"{problem or 'ok'}\n".encode())
        else:
            paths = f"{METRICS_PATHS[0]}, {energy_events.PATH}, {HEALTH_PATH} and {READY_PATH}"
            self._respond(404, _TEXT, f"not found; the paths are {paths}\n".encode())

    def _respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.begin(status, headers | {"Content-Length": str(len(body))})
        self.send(body)
