"""The agent's HTTP server: metrics for Prometheus, energy as server-sent events, and a sign of life for probes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, make_wsgi_app

from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop_agent.telemetry import energy_events
from wattloop_agent.telemetry.bounded_server import BoundedServer, BoundedServerOnV6, RateLimitedHandler
from wattloop_agent.telemetry.connection_places import ConnectionPlaces
from wattloop_agent.telemetry.energy_events import EnergyEvents

METRICS_PATHS = ("/metrics", "/")
HEALTH_PATH = "/healthz"
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def serve(
    address: Address, registry: CollectorRegistry, events: EnergyEvents, places: ConnectionPlaces | None = None
) -> Callable[[], None]:
    """Serve them until the returned function is called.

    Args:
        address: Where to listen.
        registry: What ``/metrics`` shows.
        events: What subscribers get.
        places: The server's connections; default: places of its own.

    Raises:
        OperationError: The address can't be listened at.
    """

    class Handler(_Handler):
        pass

    Handler.exposition, Handler.events = _Exposition(registry), events
    kind = BoundedServerOnV6 if ":" in address.host else BoundedServer
    try:
        server = kind((address.host, address.port), Handler, ConnectionPlaces() if places is None else places)
    except OSError as error:
        raise OperationError(f"metrics at {address.host}:{address.port}: {error.strerror or error}") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        events.close()
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class _Exposition:
    """The metrics as text, rendered for one client at a time: the others wait without a share of the processor."""

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


class _Handler(RateLimitedHandler):
    exposition: _Exposition
    events: EnergyEvents

    def do_GET(self) -> None:  # noqa: N802 - http.server's word
        self.server.places.answering(self.connection, time.monotonic())
        address = urlsplit(self.path)
        if address.path == energy_events.PATH:
            self.events.stream(self.path, self.client_address[0], self)
        elif address.path in METRICS_PATHS:
            accepted = (self.headers.get(name, "") for name in ("Accept", "Accept-Encoding"))
            headers, body = self.exposition.render(address.query, *accepted)
            self._answer(200, headers, body)
        elif address.path == HEALTH_PATH:
            self._answer(200, _TEXT, b"ok\n")
        else:
            paths = f"{METRICS_PATHS[0]}, {energy_events.PATH} and {HEALTH_PATH}"
            self._answer(404, _TEXT, f"there are {paths}\n".encode())

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, data: bytes) -> None:
        self.wfile.write(data)

    def leave_requests(self) -> None:
        self.server.places.leave(self.connection)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.begin(status, headers | {"Content-Length": str(len(body))})
        self.send(body)
