"""Many connections and requests of one address: the server is bounded, and still answers the other addresses.

127.0.0.2 to 127.0.0.4 are the hostile pods, 127.0.0.1 is the neighbour.
"""

import contextlib
import logging
import math
import socket
import ssl
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from support.control_plane.certificates import CertificateAuthority
from wattloop.commands.settings import Address
from wattloop_operator.http import connection_limits, http_connection, http_service
from wattloop_operator.http.certificates import ServingCertificate
from wattloop_operator.http.connection_limits import OVERLOADED, OpenConnections
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reporting.request_handling import json_body

NEIGHBOUR, *HOSTILE = (f"127.0.0.{number}" for number in range(1, 5))
LOOPBACK = Address("127.0.0.1", 0)
LIMIT = 8
HALF_A_HEAD = b"GET /short HTTP/1.1\r\nHost: watt"
FULL = "flooded: rejected: too many connections or requests (1 since the last such line)"
HALF_A_BODY = b"POST /body HTTP/1.1\r\nHost: wattloop\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"


@dataclass
class Flooded:
    """A server with small limits, and the clients of it."""

    service: HttpService
    stack: contextlib.ExitStack
    running: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    may_end: threading.Event = field(default_factory=threading.Event)
    tls: ssl.SSLContext | None = None

    def connect(self, address: str, sent: bytes = b"") -> socket.socket:
        """A connection of an address, which stays open."""
        target = (self.service.address.host, self.service.address.port)
        connection = self.stack.enter_context(socket.create_connection(target, timeout=60, source_address=(address, 0)))
        connection.sendall(sent)
        return connection

    def get(self, path: str, address: str = NEIGHBOUR) -> str:
        """The text of the answer, or its status if it is an error."""
        transport = httpx.HTTPTransport(local_address=address, verify=self.tls or True)
        with httpx.Client(transport=transport, timeout=60) as client:
            answer = client.get(f"{self.service.url}/{path}")
        return answer.text if answer.is_success else str(answer.status_code)

    def start(self, threads: ThreadPoolExecutor, address: str) -> Callable[[], str]:
        """Begin a request that runs until `may_end`; returns what waits for its answer."""
        pending = threads.submit(self.get, "long", address)
        self.running.acquire()
        return pending.result


@contextlib.contextmanager
def flooded(
    monkeypatch: pytest.MonkeyPatch,
    certificate: ServingCertificate | None = None,
    on_rejected: Callable[[str], None] = lambda _: None,
    bind: Address | Path = LOOPBACK,
) -> Iterator[Flooded]:
    monkeypatch.setattr(http_service, "MAX_CONCURRENCY", LIMIT)
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 3600.0)
    monkeypatch.setattr(connection_limits, "LOG_INTERVAL_SECONDS", math.inf)

    async def short(_: Request) -> PlainTextResponse:
        return PlainTextResponse("answered")

    async def long(_: Request) -> PlainTextResponse:
        served.running.release()
        await run_in_threadpool(served.may_end.wait)
        return PlainTextResponse("answered at last")

    async def body(request: Request) -> PlainTextResponse:
        await json_body(request, 1024)
        return PlainTextResponse("received")

    app = Starlette(routes=[Route("/short", short), Route("/long", long), Route("/body", body, methods=["POST"])])
    service = HttpService("flooded", app, bind, certificate=certificate, on_rejected=on_rejected)
    with contextlib.ExitStack() as stack:
        served = Flooded(service, stack)
        service.start()
        try:
            yield served
        finally:
            served.may_end.set()
            stack.close()
            service.stop()


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server has closed the connection, perhaps after an answer."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1024):
            """The rest of an answer."""
    return True


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD], ids=["silent", "half a head"])
def test_idle_connections_of_one_address_keep_no_other_address_out(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with flooded(monkeypatch) as served:
        hostile = [served.connect(HOSTILE[0], sent) for _ in range(5 * LIMIT)]
        assert served.get("short") == "answered"
        # The oldest ones were closed, for later ones of the same address and for the neighbour.
        assert all(is_closed(connection) for connection in hostile[: 3 * LIMIT + 1])
        hostile[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            hostile[-1].recv(1)
    assert lines_of(caplog) == [FULL]


def test_half_bodies_of_one_address_keep_no_other_address_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with flooded(monkeypatch) as served:
        for _ in range(5 * LIMIT):
            served.connect(HOSTILE[0], HALF_A_BODY)
        assert served.get("short") == "answered"


def test_connections_without_a_tls_handshake_keep_no_other_address_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = CertificateAuthority()
    pair = authority.server(["127.0.0.1"], ["reports.example"])
    with flooded(monkeypatch, ServingCertificate(*pair.write(tmp_path))) as served:
        served.tls = ssl.create_default_context(cadata=authority.certificate.decode())
        hostile = [served.connect(HOSTILE[0]) for _ in range(5 * LIMIT)]
        assert served.get("short") == "answered"
        assert all(is_closed(connection) for connection in hostile[: 3 * LIMIT + 1])
    assert lines_of(caplog) == [FULL]


def test_a_running_request_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with flooded(monkeypatch) as served, ThreadPoolExecutor(1) as threads:
        # Of the same address, as behind one node's address.
        running = served.start(threads, HOSTILE[0])
        hostile = [served.connect(HOSTILE[0]) for _ in range(3 * LIMIT)]
        assert is_closed(hostile[0])
        served.may_end.set()
        assert running() == "answered at last"


def test_a_running_request_at_a_unix_socket_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder, flooded(monkeypatch, bind=Path(folder) / "socket") as served:

        def connect(sent: bytes = b"") -> socket.socket:
            connection = served.stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(60)
            connection.connect(f"{folder}/socket")
            connection.sendall(sent)
            return connection

        running = connect(b"GET /long HTTP/1.1\r\nHost: wattloop\r\n\r\n")
        served.running.acquire()
        silent = [connect() for _ in range(3 * LIMIT)]
        assert is_closed(silent[0])
        served.may_end.set()
        assert running.recv(12) == b"HTTP/1.1 200"


def test_an_address_may_use_all_connections_while_no_other_one_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with flooded(monkeypatch) as served:
        served_at_once = [served.connect(HOSTILE[0]) for _ in range(2 * LIMIT)]
        for connection in served_at_once:
            connection.sendall(b"GET /short HTTP/1.1\r\nHost: wattloop\r\n\r\n")
        assert [connection.recv(12) for connection in served_at_once] == [b"HTTP/1.1 200"] * 2 * LIMIT


def test_an_address_with_more_than_its_share_of_running_requests_gets_503_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rejected: list[str] = []
    with flooded(monkeypatch, on_rejected=rejected.append) as served, ThreadPoolExecutor(2 * LIMIT) as threads:
        running = [served.start(threads, HOSTILE[0]) for _ in range(LIMIT)]
        assert [served.get("short", HOSTILE[0]) for _ in range(3)] == ["503"] * 3
        assert [served.get("short") for _ in range(3)] == ["answered"] * 3
        running += [served.start(threads, NEIGHBOUR) for _ in range(LIMIT // 2)]
        assert served.get("short") == "503"
        served.may_end.set()
        assert [answer() for answer in running] == ["answered at last"] * (LIMIT + LIMIT // 2)
    assert rejected == [OVERLOADED] * 4
    assert lines_of(caplog) == [FULL]


def test_a_connection_is_closed_at_once_while_all_others_run_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    # Twice the running requests of one address: two connections of each of four addresses.
    with flooded(monkeypatch) as served, ThreadPoolExecutor(2 * LIMIT) as threads:
        running = [served.start(threads, HOSTILE[0]) for _ in range(LIMIT)]
        running += [served.start(threads, address) for address in (HOSTILE[1], HOSTILE[2]) for _ in range(2)]
        running += [served.start(threads, NEIGHBOUR) for _ in range(2)]
        # The rest of the places wait for their clients, and only these are taken.
        silent = [served.connect(NEIGHBOUR) for _ in range(LIMIT)]
        assert all(is_closed(connection) for connection in silent[: len(silent) - (2 * LIMIT - len(running))])
        served.may_end.set()
        assert [answer() for answer in running] == ["answered at last"] * len(running)


PEERS = st.tuples(st.sampled_from("abc"), st.integers(0, 6))


@given(st.lists(st.tuples(st.sampled_from(["open", "close", "serve", "wait"]), PEERS), max_size=80))
def test_the_connections_are_bounded_and_the_address_with_most_gives_way(
    steps: list[tuple[str, tuple[str, int]]],
) -> None:
    limit = 5
    counted = OpenConnections(limit)
    held: dict[tuple[str, int], Callable[[], None]] = {}
    busy: set[tuple[str, int]] = set()
    closed: list[tuple[str, int]] = []
    for step, peer in steps:
        if step == "open" and peer not in held:
            of_address = Counter(address for address, _ in held)
            evictable = {address for address, port in held if (address, port) not in busy}
            closed.clear()
            if not counted.make_room():
                assert len(held) == limit
                assert not evictable
                continue
            if closed:
                (victim,) = closed
                assert len(held) == limit
                assert victim not in busy
                assert of_address[victim[0]] == max(of_address[address] for address in evictable)
                del held[victim]

            def close(victim: tuple[str, int] = peer) -> None:
                closed.append(victim)

            held[peer] = close
            counted.add(peer, close)
        elif step == "close" and peer in held:
            counted.remove(peer, held.pop(peer))
            busy.discard(peer)
        elif step in ("serve", "wait"):
            getattr(counted, step)(peer)
            busy = busy | {peer} if step == "serve" and peer in held else busy - {peer}
        assert len(counted) == len(held) <= limit
