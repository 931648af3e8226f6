"""Requests to the operator's reporting API over HTTP: the token and the certificates, and what an error means.

The API of a local run is at a Unix socket; see `wattloop.wire.unix_http`.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from wattloop.wire.unix_http import UnixHandler, is_unix_url, split_unix_url

# Client errors that a retry may not get: a rotated token, a busy server.
RETRYABLE_CODES = frozenset({401, 408, 425, 429})
# Errors whose Retry-After says when the server accepts the next request.
RETRY_AFTER_CODES = frozenset({429, 503})
MIN_RETRY_AFTER_SECONDS = 1.0
# Of the body of an answer, however slowly the server sends it.
ANSWER_SECONDS = 15.0
CHUNK_BYTES = 64 * 1024
# What `OperatorApi.send` raises.
REQUEST_ERRORS = (OSError, http.client.HTTPException, ValueError, RecursionError)


class OperatorApi:
    """Sends requests for one recurrence.

    Args:
        url: URL of the recurrence at the reporting API.
        token_file: File with the bearer token, read again for each request because Kubernetes rotates it; empty: none.
        certificate_authority_file: Certificates to verify the server with; empty: the system's.
    """

    def __init__(self, url: str, token_file: str = "", certificate_authority_file: str = "") -> None:
        self.url = self._url_of_requests = url.rstrip("/")
        self._socket: Path | None = None
        if is_unix_url(url):
            self._socket, self._url_of_requests = split_unix_url(self.url)
        self._token_file = token_file
        self._certificate_authority_file = certificate_authority_file

    def send(self, method: str, path: str, body: object, timeout_seconds: float, max_answer_bytes: int) -> Any:
        """Send a request and return the JSON of the answer.

        Args:
            method: ``POST`` or ``PUT``.
            path: Below the URL of the recurrence, with a slash at its begin.
            body: JSON types.
            timeout_seconds: How long to wait for the answer; its body may take `ANSWER_SECONDS` more.
            max_answer_bytes: An answer that is longer is invalid.

        Raises:
            OSError: The server is unreachable, or answered with an error (`urllib.error.HTTPError`).
            http.client.HTTPException: The answer is no HTTP.
            ValueError: The answer is no JSON or too long, the token file is invalid, or the scheme is not supported.
            RecursionError: The answer is nested too deeply.
        """
        headers = {"Content-Type": "application/json"}
        if self._token_file:
            headers["Authorization"] = f"Bearer {Path(self._token_file).read_text(encoding='ascii').strip()}"
        request = urllib.request.Request(  # noqa: S310  the opener below supports only http and https
            self._url_of_requests + path,
            data=json.dumps(body, allow_nan=False).encode(),
            headers=headers,
            method=method,
        )
        if request.type not in ("http", "https"):
            raise ValueError(f"found the scheme {request.type}, expected http or https in WATTLOOP_REPORT_URL")
        with self._opener(request.type).open(request, timeout=timeout_seconds) as response:
            return json.loads(_body(response, max_answer_bytes))

    def _opener(self, scheme: str) -> urllib.request.OpenerDirector:
        # No redirects and no proxies: the token must reach only the operator. Created for each request, since
        # certificates can be rotated, and missing ones then fail only this request.
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(),
        ]
        if scheme == "https":
            context = ssl.create_default_context(cafile=self._certificate_authority_file or None)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        else:
            handlers.append(urllib.request.HTTPHandler() if self._socket is None else UnixHandler(self._socket))
        opener = urllib.request.OpenerDirector()
        for handler in handlers:
            opener.add_handler(handler)
        return opener


def _body(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    deadline = time.monotonic() + ANSWER_SECONDS
    body = bytearray()
    while chunk := response.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > max_bytes:
            raise ValueError(f"its answer has more than {max_bytes} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"its answer took more than {ANSWER_SECONDS:g} s")
    return bytes(body)


def retry_after_seconds(error: Exception) -> float | None:
    """The Retry-After of an error; None without one."""
    if not isinstance(error, urllib.error.HTTPError) or error.code not in RETRY_AFTER_CODES:
        return None
    text = error.headers.get("Retry-After", "")
    # Ignores the date form, which compares two clocks; the backoff then applies.
    is_number = text.isascii() and text.isdecimal()
    return float(max(int(text[:9]), MIN_RETRY_AFTER_SECONDS)) if is_number else None


def is_permanent(error: Exception) -> bool:
    """Whether the server would reject the same request again."""
    return isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in RETRYABLE_CODES


def describe_error(error: Exception) -> str:
    """The error with the begin of the server's message."""
    if isinstance(error, urllib.error.HTTPError):
        with error:
            try:
                text = error.read(512).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException):  # the body is lost, the status is known
                text = ""
        return f"HTTP {error.code} {error.reason}{': ' if text else ''}{text}"
    # `urllib` wraps what fails before the request is sent.
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(cause) or type(cause).__name__
