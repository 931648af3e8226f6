"""Clients that are slow, silent or too many: cut, so that they hold neither a server nor the process's files."""

from __future__ import annotations

import contextlib
import logging
import math
import select
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from wattloop.commands.settings import Address
from wattloop_operator.http import bounded_connection, rejected_requests, server
from wattloop_operator.http.rejected_requests import CROWDED, MALFORMED
from wattloop_operator.http.server import HttpService
from wattloop_operator.reporting.request_handling import json_body

HEAD = b"POST /body HTTP/1.1\r\nHost: wattloop\r\nContent-Type: application/json\r\n"
# What a socket holds of an answer that nobody takes in is much less.
LARGE_ANSWER_BYTES = 64 * 1024 * 1024


async def take(request: Request) -> PlainTextResponse:
    await json_body(request, 1024)
    return PlainTextResponse("taken")


async def give(_: Request) -> PlainTextResponse:
    return PlainTextResponse("x" * LARGE_ANSWER_BYTES)


async def fail(_: Request) -> PlainTextResponse:
    raise ZeroDivisionError


ROUTES = [Route("/body", take, methods=["POST"]), Route("/large", give), Route("/mistake", fail)]
APP = Starlette(routes=ROUTES)


@contextlib.contextmanager
def serving_app(refused: Callable[[str], None] = lambda _: None) -> Iterator[HttpService]:
    service = HttpService("slow", APP, Address("127.0.0.1", 0), refused=refused)
    service.start()
    try:
        yield service
    finally:
        service.stop()


@contextlib.contextmanager
def connected(service: HttpService) -> Iterator[socket.socket]:
    with socket.create_connection((service.address.host, service.address.port), timeout=60) as connection:
        yield connection


def is_cut(connection: socket.socket) -> bool:
    """Waits until the server has ended the connection; False where it answers instead."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /body HT",
        HEAD,
        HEAD + b"Content-Length: 10\r\n\r\n",
        HEAD + b"Content-Length: 10\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_a_request_that_does_not_come_is_cut_and_no_line_is_logged(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounded_connection, "REQUEST_SECONDS", 0.05)
    with serving_app() as service, connected(service) as connection:
        connection.sendall(sent)
        assert is_cut(connection)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_bytes_that_come_one_by_one_put_off_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_connection, "REQUEST_SECONDS", 0.05)
    with serving_app() as service, connected(service) as connection:
        connection.sendall(HEAD)
        # Never as many as would be refused as too long a head.
        while not select.select([connection], [], [], 0.01)[0]:
            connection.sendall(b"X")
        assert is_cut(connection)


def test_an_answer_that_nobody_takes_in_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_connection, "ANSWER_SECONDS", 0.05)
    with serving_app() as service, connected(service) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: wattloop\r\n\r\n")
        begun = select.select([connection], [], [], 60)[0]
        # Nothing of it is read: that it was cut can be seen at the server alone.
        while service._server.server_state.connections:
            time.sleep(0.01)
    assert begun


def test_a_client_in_good_order_keeps_its_connection() -> None:
    with serving_app() as service, httpx.Client(base_url=service.url) as client:
        ports = {
            client.post("/body", json={}).extensions["network_stream"].get_extra_info("client_addr") for _ in "abc"
        }
    assert len(ports) == 1


def test_beyond_what_is_served_it_is_said_and_far_beyond_it_connections_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    with serving_app() as service, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(service)) for _ in range(4)]
        assert httpx.get(f"{service.url}/body").status_code == 503
        silent += [stack.enter_context(connected(service)) for _ in range(2)]
        assert is_cut(stack.enter_context(connected(service)))
        for connection in silent:
            connection.close()
        with httpx.Client(base_url=service.url) as client:
            while (answer := client.post("/body", json={})).status_code == 503:
                """Those that were closed are not yet counted as gone."""
        assert answer.text == "taken"


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


def test_malformed_requests_are_counted_and_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rejected_requests, "LINE_EVERY_SECONDS", math.inf)
    refused: list[str] = []
    with serving_app(refused.append) as service:
        for _ in range(5):
            with connected(service) as connection:
                connection.sendall(b"no HTTP\r\n\r\n")
                assert connection.recv(12) == b"HTTP/1.1 400"
    assert refused == [MALFORMED] * 5
    assert lines_of(caplog) == ["slow: Invalid HTTP request received. (requests since this was said last: 1)"]


def test_requests_beyond_the_bound_are_counted_and_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rejected_requests, "LINE_EVERY_SECONDS", math.inf)
    monkeypatch.setattr(bounded_connection, "REQUEST_SECONDS", 3600.0)
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 8)
    refused: list[str] = []
    with serving_app(refused.append) as service, contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(connected(service))
        assert [httpx.get(f"{service.url}/body").status_code for _ in range(5)] == [503] * 5
    assert refused == [CROWDED] * 5
    assert lines_of(caplog) == ["slow: Exceeded concurrency limit. (requests since this was said last: 1)"]


def test_an_upgrade_that_is_asked_for_is_passed_over_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    refused: list[str] = []
    with serving_app(refused.append) as service:
        answer = httpx.post(f"{service.url}/body", json={}, headers={"Connection": "Upgrade", "Upgrade": "websocket"})
    assert answer.text == "taken"
    assert refused == lines_of(caplog) == []


def test_a_mistake_of_the_application_is_said_each_time(caplog: pytest.LogCaptureFixture) -> None:
    with serving_app() as service:
        assert [httpx.get(f"{service.url}/mistake").status_code for _ in range(2)] == [500, 500]
    assert lines_of(caplog) == ["Exception in ASGI application\n"] * 2


def test_connections_leave_files_to_the_rest_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.resource, "getrlimit", lambda _: (1024, 4096))
    with serving_app() as service:
        assert service._server.config.limit_concurrency == 128
