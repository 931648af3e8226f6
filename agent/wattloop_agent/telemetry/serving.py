"""The agent's HTTP endpoints: Prometheus metrics, energy events, liveness and readiness.

Energy events are server-sent. Each has the whole ledger, so that a missed event loses nothing.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry, make_wsgi_app

from wattloop import threads
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop_agent.monitor.energy.ledger import Ledger, LedgerState
from wattloop_agent.telemetry.bounded_server import BoundedHandler, BoundedServer, BoundedServerOnV6, ConnectionLimiter

METRICS_PATHS = ("/metrics", "/")
HEALTH_PATH, READY_PATH = "/healthz", "/readyz"
EVENTS_PATH = "/v1/energy/events"
# Each subscriber takes a thread.
MAX_SUBSCRIBERS = 16
MAX_SUBSCRIBERS_PER_ADDRESS = 4
INTERVAL_SECONDS = 5.0
MIN_INTERVAL_SECONDS = 1.0
MAX_INTERVAL_SECONDS = 60.0
RETRY_MILLISECONDS = 2000
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


class EnergyEvents:
    """Streams the ledger to a bounded number of subscribers.

    Event ids are based on the clock, in seconds since the epoch, so that they increase across restarts; within a
    process they increase even if the clock is set back. Nothing else in agent and client uses the wall clock.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._ledger = ledger
        self._clock = clock
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._number = 0
        self._by_address: Counter[str] = Counter()

    @property
    def subscribers(self) -> int:
        """Number of active streams."""
        return self._by_address.total()

    def stream(self, target: str, address: str, response: BoundedHandler) -> None:
        """Answer a request with events until the client disconnects (`OSError`) or the agent ends.

        ``Last-Event-ID`` of a client that reconnects is ignored, because the first event is complete.

        Args:
            target: Path and query of the request.
            address: Address of the client, without the port.
            response: The response.
        """
        try:
            interval = _interval(target)
        except ValueError as error:
            _reject(response, 400, str(error))
            return
        problem = self._subscribe(address)
        if problem is not None:
            _reject(response, 503, problem)
            return
        try:
            response.release_connection()
            response.begin(200, {"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            response.send(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
            response.send(self._event())
            while not self._stopping.wait(interval):
                response.send(self._event())
        finally:
            with self._lock:
                self._by_address -= Counter([address])

    def close(self) -> None:
        """End all streams."""
        self._stopping.set()

    def _subscribe(self, address: str) -> str | None:
        """Add a subscriber of this address; return why it was rejected, or None."""
        with self._lock:
            if self.subscribers >= MAX_SUBSCRIBERS:
                return f"the limit of {MAX_SUBSCRIBERS} subscribers is reached; try again"
            if self._by_address[address] >= MAX_SUBSCRIBERS_PER_ADDRESS:
                return f"the limit of {MAX_SUBSCRIBERS_PER_ADDRESS} subscribers of {address} is reached; end one"
            self._by_address[address] += 1
            return None

    def _event(self) -> bytes:
        content = self._ledger.read(_content)
        with self._lock:
            self._number = max(self._number + 1, int(self._clock() * 1000))
            number = self._number
        return f"id: {number}\nevent: energy\ndata: {json.dumps(content, allow_nan=False)}\n\n".encode()


def _content(state: LedgerState) -> dict[str, object]:
    # Read under one lock: with the id of another ledger, the same numbers would count twice.
    return {
        "ledger": state.id,
        "gpus": [asdict(account.to_wire()) for account in state.accounts.values()],
        "usages": [asdict(interval.to_wire()) for interval in state.intervals.values()],
    }


def _interval(target: str) -> float:
    values = parse_qs(urlsplit(target).query).get("interval_seconds", [str(INTERVAL_SECONDS)])
    try:
        seconds = float(values[-1])
    except ValueError:
        seconds = -1.0
    if not MIN_INTERVAL_SECONDS <= seconds <= MAX_INTERVAL_SECONDS:
        raise ValueError(
            f"interval_seconds: found {values[-1][:80]!r}, expected a number from {MIN_INTERVAL_SECONDS:g} to "
            f"{MAX_INTERVAL_SECONDS:g}"
        )
    return seconds


def _reject(response: BoundedHandler, status: int, message: str) -> None:
    headers = {"Content-Type": "text/plain; charset=utf-8"} | ({"Retry-After": "5"} if status == 503 else {})
    response.begin(status, headers)
    response.send(f"{message}\n".encode())


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
        if address.path == EVENTS_PATH:
            self.events.stream(self.path, self.client_address[0], self)
        elif address.path in METRICS_PATHS:
            accepted = (self.headers.get(name, "") for name in ("Accept", "Accept-Encoding"))
            headers, body = self.exposition.render(address.query, *accepted)
            self._respond(200, headers, body)
        elif address.path in {HEALTH_PATH, READY_PATH}:
            problem = threads.problem() or (self.not_ready() if address.path == READY_PATH else "")
            self._respond(503 if problem else 200, _TEXT, f"{problem or 'ok'}\n".encode())
        else:
            paths = f"{METRICS_PATHS[0]}, {EVENTS_PATH}, {HEALTH_PATH} and {READY_PATH}"
            self._respond(404, _TEXT, f"not found; the paths are {paths}\n".encode())

    def _respond(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.begin(status, headers | {"Content-Length": str(len(body))})
        self.send(body)
