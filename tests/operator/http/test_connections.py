"""Slow, silent and too many clients: the server closes their connections, and blocks neither itself nor the process."""

import contextlib
import logging
import math
import select
import socket
import time
from collections.abc import Callable, Iterator

import h11
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from wattloop.commands.settings import Address
from wattloop_operator.http import connection_limits, http_connection, http_service
from wattloop_operator.http.connection_limits import MALFORMED
from wattloop_operator.http.http_connection import IN_CHUNKS, PIECE_BYTES
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reporting.request_handling import json_body

HEAD = b"POST /body HTTP/1.1\r\nHost: wattloop\r\nContent-Type: application/json\r\n"
# Much more than the socket buffers hold of a response that the client does not read.
LARGE_RESPONSE_BYTES = 64 * 1024 * 1024


async def accept(request: Request) -> PlainTextResponse:
    await json_body(request, 1024)
    return PlainTextResponse("accepted")


async def respond_at_length(_: Request) -> PlainTextResponse:
    return PlainTextResponse("x" * LARGE_RESPONSE_BYTES)


async def fail(_: Request) -> PlainTextResponse:
    raise ZeroDivisionError


ROUTES = [Route("/body", accept, methods=["POST"]), Route("/large", respond_at_length), Route("/bug", fail)]
APP = Starlette(routes=ROUTES)


@contextlib.contextmanager
def serving_app(on_rejected: Callable[[str], None] = lambda _: None) -> Iterator[HttpService]:
    service = HttpService("slow", APP, Address("127.0.0.1", 0), on_rejected=on_rejected)
    service.start()
    try:
        yield service
    finally:
        service.stop()


@contextlib.contextmanager
def connected(service: HttpService) -> Iterator[socket.socket]:
    with socket.create_connection((service.address.host, service.address.port), timeout=60) as connection:
        yield connection


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes the connection; False if it responds instead."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "sent", [b"", b"POST /body HT", HEAD, HEAD + b"Content-Length: 10\r\n\r\n", HEAD + b"Content-Length: 10\r\n\r\n{"]
)
def test_the_connection_of_an_incomplete_request_is_closed_and_nothing_is_logged(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 0.05)
    with serving_app() as service, connected(service) as connection:
        connection.sendall(sent)
        assert is_closed(connection)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_body_in_chunks_is_refused_and_parsed_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    receive = h11.Connection.receive_data

    def count(self: h11.Connection, data: bytes) -> None:
        parsed.append(len(data))
        receive(self, data)

    monkeypatch.setattr(h11.Connection, "receive_data", count)
    with serving_app() as service, connected(service) as connection:
        # More than the server reads at once, and less than the buffers of the sockets hold.
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 50_000)
        assert connection.recv(12) == b"HTTP/1.1 411"
    assert parsed == [PIECE_BYTES]


def test_a_client_that_still_sends_its_body_gets_the_answer_and_no_reset() -> None:
    with serving_app() as service, connected(service) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        answer = b""
        while received := connection.recv(4096):
            answer += received
        # To a closed socket, the first would be answered with a reset, and the second fail.
        for _ in range(2):
            connection.sendall(b"1\r\n \r\n")
    assert answer.startswith(b"HTTP/1.1 411")
    assert answer.endswith(IN_CHUNKS.body)


def test_what_follows_a_malformed_request_is_not_parsed(caplog: pytest.LogCaptureFixture) -> None:
    with serving_app() as service, connected(service) as connection:
        connection.sendall(b"no HTTP\r\n\r\n" + b"x" * 10 * PIECE_BYTES)
        assert connection.recv(12) == b"HTTP/1.1 400"
    assert lines_of(caplog) == ["slow: rejected: invalid HTTP request (1 since the last such line)"]


def test_single_bytes_do_not_extend_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 0.05)
    with serving_app() as service, connected(service) as connection:
        connection.sendall(HEAD)
        # Fewer than the server rejects as too long a head.
        while not select.select([connection], [], [], 0.01)[0]:
            connection.sendall(b"X")
        assert is_closed(connection)


def test_the_connection_of_an_unread_response_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "RESPONSE_SECONDS", 0.05)
    with serving_app() as service, connected(service) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: wattloop\r\n\r\n")
        started = select.select([connection], [], [], 60)[0]
        # The client reads nothing, so only the server shows that the connection is closed.
        while service._connected:
            time.sleep(0.01)
    assert started


def test_a_well_behaved_client_keeps_its_connection() -> None:
    with serving_app() as service, httpx.Client(base_url=service.url) as client:
        ports = {
            client.post("/body", json={}).extensions["network_stream"].get_extra_info("client_addr") for _ in "abc"
        }
    assert len(ports) == 1


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


def test_no_part_of_a_response_waits_until_the_client_has_acknowledged_another() -> None:
    with serving_app() as service, connected(service) as client:
        client.sendall(b"GET /none HTTP/1.1\r\nHost: wattloop\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 404"
        (connection,) = service._connected
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_malformed_requests_are_counted_and_logged_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_limits, "LOG_INTERVAL_SECONDS", math.inf)
    rejected: list[str] = []
    with serving_app(rejected.append) as service:
        for _ in range(5):
            with connected(service) as connection:
                connection.sendall(b"no HTTP\r\n\r\n")
                assert connection.recv(12) == b"HTTP/1.1 400"
    assert rejected == [MALFORMED] * 5
    assert lines_of(caplog) == ["slow: rejected: invalid HTTP request (1 since the last such line)"]


def test_a_request_for_an_upgrade_is_answered_without_it_and_without_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rejected: list[str] = []
    with serving_app(rejected.append) as service:
        answer = httpx.post(f"{service.url}/body", json={}, headers={"Connection": "Upgrade", "Upgrade": "websocket"})
    assert answer.text == "accepted"
    assert rejected == lines_of(caplog) == []


def test_each_exception_of_the_application_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with serving_app() as service:
        assert [httpx.get(f"{service.url}/bug").status_code for _ in range(2)] == [500, 500]
    assert lines_of(caplog) == ["GET /bug: unexpected failure"] * 2


def test_connections_leave_file_descriptors_to_the_rest_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_service.resource, "getrlimit", lambda _: (1024, 4096))
    with serving_app() as service:
        assert service.max_concurrency == 128
