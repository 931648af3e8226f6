"""The agent's HTTP server: metrics for Prometheus, and energy as server-sent events."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, MetricsHandler

from wattloop.commands.settings import Address
from wattloop.errors import CannotError
from wattloop_agent.telemetry import energy_events
from wattloop_agent.telemetry.energy_events import EnergyEvents

logger = logging.getLogger(__name__)

# A caller that sends or takes nothing for this long is dropped.
SLOW_SECONDS = 10.0
METRICS_PATHS = ("/metrics", "/")


def serve(address: Address, registry: CollectorRegistry, events: EnergyEvents) -> Callable[[], None]:
    """Serve both until the returned function is called.

    Raises:
        CannotError: The address can't be listened at.
    """

    class Handler(_Handler):
        pass

    Handler.registry, Handler.events = registry, events
    try:
        server = (_ServerOnV6 if ":" in address.host else _Server)((address.host, address.port), Handler)
    except OSError as error:
        raise CannotError(f"metrics at {address.host}:{address.port}: {error.strerror or error}") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        events.close()
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class _Server(ThreadingHTTPServer):
    # Neither a scrape nor a stream must keep an agent from ending.
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        logger.debug("a caller of the metrics is gone", exc_info=True)


class _ServerOnV6(_Server):
    address_family = socket.AF_INET6


class _Handler(MetricsHandler):
    timeout = SLOW_SECONDS
    events: EnergyEvents

    def do_GET(self) -> None:  # noqa: N802 - http.server's word
        path = urlsplit(self.path).path
        if path == energy_events.PATH:
            self.events.stream(self.path, self)
        elif path in METRICS_PATHS:
            super().do_GET()
        else:
            self.begin(404, {"Content-Type": "text/plain; charset=utf-8"})
            self.send(f"there are {METRICS_PATHS[0]} and {energy_events.PATH}\n".encode())

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, data: bytes) -> None:
        self.wfile.write(data)
