"""Errors of the reporting API over HTTP: their code and message, and that nothing is stored."""

import contextlib
import json
import socket
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.reporting.reporting_api import BODY, Api, running_api

GPU = {
    "uuid": "GPU-0",
    "start_energy_millijoules": 5,
    "energy_millijoules": 9,
    "start_time_seconds": 1.0,
    "time_seconds": 2.0,
}


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (None, "this run did not issue the token"),
        ("made-up", "this run did not issue the token"),
        ("größe", "this run did not issue the token"),
    ],
)
def test_an_unknown_token_is_rejected(api: Api, token: str | None, message: str) -> None:
    name, _ = api.recurrence()
    reply = api.post(name, None if token is None else token.encode().decode("latin-1"))
    assert (reply.code, reply.body) == (401, {"detail": message})
    assert reply.headers["www-authenticate"] == "Bearer"
    assert api.progress(name) is None


def test_an_authorization_scheme_other_than_bearer_is_rejected(api: Api) -> None:
    name, token = api.recurrence()
    assert api.post(name, None, Authorization=f"Basic {token}").code == 401


def test_the_token_of_another_recurrence_is_rejected(api: Api) -> None:
    name, _ = api.recurrence()
    _, other_token = api.recurrence()
    reply = api.post(name, other_token)
    assert (reply.code, reply.body) == (403, {"detail": f"the token is not that of team/{name}"})
    assert api.progress(name) is None
    assert api.ask(api.path(name, last="decision"), other_token).code == 403


def test_the_same_name_in_another_namespace_is_another_recurrence(api: Api) -> None:
    name, token = api.recurrence()
    assert api.ask(api.path(name, namespace="other"), token, json.dumps(BODY).encode()).code == 403


def test_a_deleted_recurrence_gives_404(api: Api) -> None:
    name, token = api.recurrence()
    api.store.objects.delete("TrainingRecurrence", "team", name)
    reply = api.post(name, token)
    assert (reply.code, reply.body) == (404, {"detail": f"TrainingRecurrence team/{name} does not exist"})


@pytest.mark.parametrize("name", ["UPPER", "a_b", "-a", "a" * 64, "..%2F..%2Fetc", "%00", "a%20b"])
def test_an_invalid_recurrence_name_is_rejected(api: Api, name: str) -> None:
    reply = api.ask(api.path(name), "x", json.dumps(BODY).encode())
    assert reply.code in (404, 422)
    assert isinstance(reply.body["detail"], str)


WRONG: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "NaN": (
        b'{"process": "p", "sequence": 1, "epoch": 1, "metric": NaN}',
        "expected JSON: found NaN, expected a finite number",
    ),
    "infinity": (b'{"process": "p", "sequence": 1, "epoch": Infinity}', "found Infinity, expected a finite number"),
    "a number beyond floats": (
        b'{"process": "p", "sequence": 1, "epoch": 1e999}',
        "epoch: found inf, expected a finite number",
    ),
    "endless digits": (
        b'{"process": "p", "sequence": 1' + b"0" * 5000 + b', "epoch": 1}',
        "JSON: a whole number of more than 4300 digits",
    ),
    "deep nesting": (b"[" * 60_000, "expected JSON: lists or objects nested too deeply"),
    "deep nesting that ends": (b"[" * 30_000 + b"]" * 30_000, "expected"),
    "nothing": (b"", "expected JSON"),
    "no JSON": (b"sequence=1", "expected JSON"),
    "no text": (b"\xff\xfe\x00", "expected JSON"),
    "a list": (b"[]", "the message: found a list, expected an object"),
    "negative energy": ({"gpus": [GPU | {"energy_millijoules": 4}]}, "energy is never negative"),
    "too many GPUs": ({"gpus": [GPU | {"uuid": f"GPU-{index}"} for index in range(65)]}, "gpus: found 65 entries"),
    "the same GPU twice": ({"gpus": [GPU, GPU]}, "the same uuid twice"),
    "an unknown field": ({"loss": 1}, "found the unknown field 'loss', expected only process, sequence, epoch, metric"),
    "a boolean": ({"process": "p", "sequence": True}, "sequence: found True"),
    "a NUL": ({"gpu_product": "A\0B"}, "gpu_product: found 'A\\x00B'"),
    "half a character": (
        b'{"process": "p", "sequence": 1, "epoch": 1, "gpu_product": "\\ud800"}',
        "gpu_product: found '\\ud800'",
    ),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG.keys())
def test_an_invalid_body_is_rejected_with_its_field(api: Api, body: bytes | dict[str, Any], message: str) -> None:
    name, token = api.recurrence()
    reply = api.post(name, token, body if isinstance(body, bytes) else BODY | body)
    assert reply.code == 422
    assert message in reply.body["detail"]
    assert len(reply.body["detail"]) < 500
    assert api.progress(name) is None


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_another_content_type_is_rejected(api: Api, content_type: str) -> None:
    name, token = api.recurrence()
    reply = api.post(name, token, Content_Type=content_type)
    assert (reply.code, reply.body) == (415, {"detail": "expected the content type application/json"})


def test_a_content_type_with_parameters_is_accepted(api: Api) -> None:
    name, token = api.recurrence()
    assert api.post(name, token, Content_Type="Application/JSON; charset=utf-8").code == 200


def answer_to(api: Api, name: str, head: str, body: bytes) -> bytes:
    """The answer to a request of which only the beginning is sent."""
    address = urlsplit(api.url)
    lines = f"POST {urlsplit(api.path(name)).path} HTTP/1.1\r\nHost: wattloop\r\nContent-Type: application/json\r\n"
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=60) as connection:
        connection.sendall(f"{lines}{head}\r\n\r\n".encode() + body)
        return connection.recv(65536)


def test_a_body_announced_as_ten_megabytes_is_rejected_unread(api: Api) -> None:
    name, token = api.recurrence()
    answer = answer_to(api, name, f"Authorization: Bearer {token}\r\nContent-Length: 10485760", b"")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()


def test_a_report_of_an_unauthorized_caller_is_rejected_unread(api: Api) -> None:
    name, _ = api.recurrence()
    answer = answer_to(api, name, "Authorization: Bearer stranger\r\nContent-Length: 60000", b"")
    assert answer.startswith(b"HTTP/1.1 401")


def test_a_body_without_a_length_is_refused(api: Api) -> None:
    name, token = api.recurrence()
    answer = answer_to(api, name, f"Authorization: Bearer {token}\r\nTransfer-Encoding: chunked", b"2\r\n{}\r\n")
    assert answer.startswith(b"HTTP/1.1 411")
    assert b"connection: close" in answer.lower()


def test_a_body_of_the_maximum_size_is_accepted(api: Api) -> None:
    name, token = api.recurrence()
    body = json.dumps(BODY).encode()
    assert api.post(name, token, body + b" " * (64 * 1024 - len(body))).code == 200
    assert api.post(name, token, body + b" " * (64 * 1024 - len(body) + 1)).code == 413


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/", "/v1", "/metrics"])
def test_other_paths_give_404(api: Api, path: str) -> None:
    assert api.ask(api.url + path, None).code == 404


def test_a_failing_database_gives_503_with_retry_after(tmp_path: Path) -> None:
    with running_api(tmp_path) as api:
        name, token = api.recurrence()
        with contextlib.closing(sqlite3.connect(tmp_path / "wattloop.db")) as other:
            other.execute("DROP TABLE objects")
        reply = api.post(name, token)
    assert reply.code == 503
    assert reply.headers["retry-after"] == "5"
    assert "wattloop.db: cannot read TrainingRecurrence team/" in reply.body["detail"]
