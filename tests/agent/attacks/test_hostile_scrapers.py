"""The metrics port under hostile clients: threads, memory and time are bounded, others are served."""

import contextlib
import errno
import http.client
import resource
import socket
import socketserver
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from support.agents.agent_fixture import AgentFixture, until
from support.agents.scraping import scraped
from support.free_ports import free_port
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.settings import Address
from wattloop_agent.monitor.energy.ledger import Ledger
from wattloop_agent.telemetry import bounded_server
from wattloop_agent.telemetry.bounded_server import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    TIMEOUT,
    ConnectionLimiter,
)
from wattloop_agent.telemetry.serving import (
    EVENTS_PATH,
    MAX_SUBSCRIBERS,
    MAX_SUBSCRIBERS_PER_ADDRESS,
    EnergyEvents,
    serve,
)

HOSTILE = [f"127.0.1.{number}" for number in range(1, 11)]
VICTIM = "127.0.0.99"


@dataclass
class MetricsServer:
    """A process that serves metrics."""

    port: int
    pid: int

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def connected(self, address: str, sent: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=(address, 0))
        connection.sendall(sent)
        return connection

    @contextlib.contextmanager
    def requested(self, address: str, target: str = "/metrics") -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(address, 0))
        connection.request("GET", target)
        with contextlib.closing(connection), connection.getresponse() as response:
            yield response


@pytest.fixture
def agent(agent_fixture: AgentFixture) -> Iterator[MetricsServer]:
    port = free_port()
    with agent_fixture.running(metrics_bind=f"127.0.0.1:{port}") as process:
        yield MetricsServer(port, process.pid)


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """A server in this process, so that tests can change its timeouts."""
    registry = CollectorRegistry()
    Counter("wattloop_something", "A counter.", registry=registry).inc()
    port = free_port()
    stop = serve(Address("127.0.0.1", port), registry, EnergyEvents(Ledger()))
    yield MetricsServer(port, 0)
    stop()


@pytest.mark.parametrize(
    "sent", exhaustive_after([b"GET /metrics HTTP/1.1\r\nHost: ", b""]), ids=["half a request", "silent"]
)
def test_many_connections_take_few_threads_and_lock_out_no_client(agent: MetricsServer, sent: bytes) -> None:
    threads, descriptors = agent.threads(), agent.descriptors()
    max_threads = max_descriptors = 0
    with contextlib.ExitStack() as stack:
        for number in range(300):
            stack.enter_context(agent.connected(HOSTILE[number % len(HOSTILE)], sent))
            max_threads = max(max_threads, agent.threads())
            max_descriptors = max(max_descriptors, agent.descriptors())
        with agent.requested(VICTIM) as response:
            assert (response.status, b"wattloop_agent_ready" in response.read()) == (200, True)
    assert max_threads <= threads + 2 * MAX_CONNECTIONS
    assert max_descriptors <= descriptors + 2 * MAX_CONNECTIONS + 8
    # The agent itself may start a thread later than the first count.
    until(lambda: agent.threads() <= threads + 2, "the threads end with the connections")


def test_a_connection_above_the_limit_of_its_address_is_answered_with_503_and_closed(agent: MetricsServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS_PER_ADDRESS):
            stack.enter_context(agent.connected(HOSTILE[0], b"GET"))
        rejected = stack.enter_context(agent.connected(HOSTILE[0]))
        assert rejected.makefile("rb").readline() == b"HTTP/1.0 503 Service Unavailable\r\n"
        assert scraped(f"127.0.0.1:{agent.port}")["wattloop_agent_http_connections_dropped"] == [
            ({"reason": "connection_limit"}, 1.0),
            ({"reason": "timeout"}, 0.0),
        ]


def test_a_request_sent_byte_by_byte_is_ended(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "REQUEST_SECONDS", 0.5)
    with server.connected(HOSTILE[0]) as connection:
        connection.settimeout(0.02)

        def is_ended() -> bool:
            try:
                connection.sendall(b"x")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        until(is_ended, "the connection is closed though a byte comes every 20 ms", 20)


def test_a_response_that_is_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    # Far more than the buffers of a local connection hold.
    Gauge("wattloop_something", "x" * 32 * 1024 * 1024, registry=registry)
    limiter = ConnectionLimiter()
    port = free_port()
    stop = serve(Address("127.0.0.1", port), registry, EnergyEvents(Ledger()), limiter)
    monkeypatch.setattr(bounded_server, "RESPONSE_SECONDS", 0.5)
    with MetricsServer(port, 0).connected(HOSTILE[0], b"GET /metrics HTTP/1.0\r\n\r\n"):
        until(lambda: limiter.dropped == {TIMEOUT: 1} and limiter.active == 0, "the connection is ended")
    stop()


def test_a_long_request_is_rejected_before_it_is_in_memory(agent: MetricsServer) -> None:
    with agent.connected(HOSTILE[0], b"GET /metrics HTTP/1.1\r\n") as connection:
        with contextlib.suppress(ConnectionError):
            for number in range(64):
                connection.sendall(b"X-%d: " % number + b"a" * 60_000 + b"\r\n")
        with contextlib.suppress(ConnectionError):
            assert connection.makefile("rb").readline().startswith(b"HTTP/1.0 431 ")
    with agent.requested(VICTIM) as response:
        assert response.status == 200


def test_subscribers_do_not_count_against_the_connections_of_scrapers(agent: MetricsServer) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(MAX_SUBSCRIBERS):
            address = HOSTILE[number // MAX_SUBSCRIBERS_PER_ADDRESS]
            assert stack.enter_context(agent.requested(address, EVENTS_PATH)).status == 200
        with agent.requested(VICTIM, EVENTS_PATH) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "5")
            assert response.read() == b"the limit of 16 subscribers is reached; try again\n"

        def active_connections() -> float:
            return scraped(f"127.0.0.1:{agent.port}")["wattloop_agent_http_connections"][0][1]

        until(lambda: active_connections() == 1, "the scrape's own connection is the only one")


def test_one_address_cannot_use_all_subscriptions(agent: MetricsServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_SUBSCRIBERS_PER_ADDRESS):
            assert stack.enter_context(agent.requested(HOSTILE[0], EVENTS_PATH)).status == 200
        assert stack.enter_context(agent.requested(HOSTILE[0], EVENTS_PATH)).status == 503
        assert stack.enter_context(agent.requested(VICTIM, EVENTS_PATH)).status == 200


def test_accepting_pauses_without_descriptors(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def exhausted(_: socketserver.TCPServer) -> None:
        tried.append(errno.EMFILE)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(bounded_server, "EXHAUSTED_SECONDS", 3600.0)
    monkeypatch.setattr(socketserver.TCPServer, "get_request", exhausted)
    with server.connected(VICTIM), server.connected(HOSTILE[0]):
        until(lambda: len(tried) > 0, "accept has failed")
        assert len(tried) == 1
    monkeypatch.undo()


def test_clients_are_served_again_after_a_shortage_of_descriptors(
    agent_fixture: AgentFixture, agent: MetricsServer
) -> None:
    until(lambda: agent.threads() > 1, "it runs")
    _, hard = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (agent.descriptors(), hard))
    with contextlib.ExitStack() as stack:
        stack.enter_context(agent.connected(VICTIM))
        for _ in range(20):
            stack.enter_context(agent.connected(HOSTILE[0]))
        until(lambda: "no connection can be accepted" in agent_fixture.log.read_text(), "accept has failed")
        assert agent_fixture.log.read_text().count("no connection can be accepted") == 1
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (hard, hard))
    with agent.requested(VICTIM) as response:
        assert response.status == 200


def test_a_health_check_returns_no_metrics(server: MetricsServer) -> None:
    with server.requested(VICTIM, "/healthz") as response:
        assert (response.status, response.read()) == (200, b"ok\n")
