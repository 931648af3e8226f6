"""The transport distinguishes an API server that is away from one that the operator cannot use."""

import json
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest
import urllib3
from kubernetes import client

from support.control_plane.certificates import CertificateAuthority
from support.free_ports import free_port
from support.http_stand_in import http_server, respond
from wattloop.errors import OperationError
from wattloop_operator.cluster.api_server import ClusterAddress
from wattloop_operator.cluster.api_transport import HttpTransport, Request, UnavailableError, retrying


def request(host: str) -> None:
    configuration = client.Configuration()
    configuration.host = host
    configuration.retries = urllib3.Retry(connect=0, read=0, redirect=0, status=0, other=0)
    with client.ApiClient(configuration) as api_client:
        HttpTransport(api_client)(Request("GET", "/apis", timeout_seconds=10.0))


@pytest.fixture
def port_of() -> Iterator[Callable[[Callable[[socket.socket], object]], int]]:
    """The port of a server that answers one connection with this function, and closes it."""
    listening: list[socket.socket] = []

    def serve(answer: Callable[[socket.socket], object]) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def run() -> None:
            connection, _ = server.accept()
            with connection:
                answer(connection)

        Thread(target=run, daemon=True).start()
        return int(server.getsockname()[1])

    yield serve
    for server in listening:
        server.close()


def test_a_refused_connection_is_an_api_server_that_is_away() -> None:
    with pytest.raises(UnavailableError, match="no response from the API server"):
        request(f"https://127.0.0.1:{free_port()}")


def test_a_connection_that_ends_in_the_handshake_is_an_api_server_that_is_away(
    port_of: Callable[[Callable[[socket.socket], object]], int],
) -> None:
    with pytest.raises(UnavailableError, match="no response from the API server"):
        request(f"https://127.0.0.1:{port_of(lambda connection: connection.recv(65536))}")


def test_a_server_without_tls_is_named_with_the_remedy(
    port_of: Callable[[Callable[[socket.socket], object]], int],
) -> None:
    port = port_of(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(OperationError, match=r"no TLS connection to the API server.*certificate-authority") as raised:
        request(f"https://127.0.0.1:{port}")
    assert not isinstance(raised.value, UnavailableError)


@pytest.mark.parametrize(
    ("statuses", "asked", "waits", "error"),
    [
        ([429, 429, 200], "1", [1.0, 1.0], None),
        ([429, 200], "", [1.0], None),
        ([429] * 4, "2", [2.0] * 3, "429 TooManyRequests: slow down"),
        ([429], "60", [], "429 TooManyRequests: slow down"),
        ([503], "1", [], "503 TooManyRequests: slow down"),
    ],
    ids=["twice", "without a time", "again and again", "for long", "another problem"],
)
def test_what_too_many_requests_refuse_is_repeated_after_the_time_that_the_server_asks_for_and_not_without_end(
    statuses: list[int], asked: str, waits: list[float], error: str | None, tmp_path: Path
) -> None:
    waited: list[float] = []

    def overloaded(request: BaseHTTPRequestHandler) -> None:
        after = {"Retry_After": asked} if asked else {}
        respond(request, statuses.pop(0), {"reason": "TooManyRequests", "message": "slow down"}, **after)

    with http_server(overloaded) as url:
        kubeconfig = tmp_path / "kubeconfig"
        cluster = {"name": "a", "cluster": {"server": url}}
        context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
        user = {"name": "a", "user": {}}
        configuration = {"current-context": "a", "clusters": [cluster], "contexts": [context], "users": [user]}
        kubeconfig.write_text(json.dumps(configuration))
        with ClusterAddress(kubeconfig).client(connections=1) as api_client:
            transport = retrying(HttpTransport(api_client), waited.append)
            if error is None:
                assert transport(Request("GET", "/apis"))["message"] == "slow down"
            else:
                with pytest.raises(UnavailableError, match=error):
                    transport(Request("GET", "/apis"))
    assert (waited, statuses) == (waits, [])


def test_a_certificate_that_is_not_trusted_is_named_with_the_remedy(tmp_path: Path) -> None:
    serving = CertificateAuthority().server(["127.0.0.1"], ["localhost"])
    context = serving.serving_context(tmp_path)
    failed = pytest.raises(OperationError, match=r"CERTIFICATE_VERIFY_FAILED.*certificate-authority")
    with http_server(lambda _: None, context) as url, failed as raised:
        request(url)
    assert not isinstance(raised.value, UnavailableError)
