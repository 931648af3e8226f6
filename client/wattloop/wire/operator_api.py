"""Requests to the operator's reporting API over HTTP: the token and the certificates, and what an error means.

The API of a local run is at a Unix socket, whose percent-encoded path is in the place of the host:
``http+unix://%2Frun%2Freports.sock/v1``. A folder that only one user can enter keeps all others from such a server; a
port of the loopback interface is open to every user of the machine.
"""

import functools
import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

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
        token_file: File with the bearer token, read again for each request because Kubernetes rotates it; empty: none.
    """

    def __init__(self, url: str, token_file: str = "", certificate_authority_file: str = "") -> None:
        self.url = self._url_of_requests = url.rstrip("/")
        self._socket: Path | None = None
        if is_unix_url(url):
            self._socket, self._url_of_requests = split_unix_url(self.url)
        self._token_file = token_file
        self._certificate_authority_file = certificate_authority_file

    def send(self, method: str, path: str, body: object, timeout_seconds: float, max_answer_bytes: int) -> Any:
        """Send a request to a path below the URL and return the JSON of the answer.

        The body of the answer may take `ANSWER_SECONDS` more than the timeout.

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


SCHEME = "http+unix"


def unix_url(path: Path) -> str:
    """The URL of the server at a socket.

    Example:
        >>> unix_url(Path("/run/reports.sock"))
        'http+unix://%2Frun%2Freports.sock'
    """
    return f"{SCHEME}://{quote(str(path), safe='')}"


def is_unix_url(url: str) -> bool:
    """Whether a URL has the form of `unix_url`."""
    return url.startswith(f"{SCHEME}://")


def split_unix_url(url: str) -> tuple[Path, str]:
    """The socket of a URL, and the URL that its server is asked for.

    Example:
        >>> split_unix_url("http+unix://%2Frun%2Freports.sock/v1/x")
        (PosixPath('/run/reports.sock'), 'http://localhost/v1/x')
    """
    host, _, selector = url.removeprefix(f"{SCHEME}://").partition("/")
    return Path(unquote(host)), f"http://localhost/{selector}"


class UnixHandler(urllib.request.HTTPHandler):
    """Opens requests of the scheme ``http`` at a socket."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """See `urllib.request.HTTPHandler`."""
        return self.do_open(functools.partial(UnixConnection, self._path), request)


class UnixConnection(http.client.HTTPConnection):
    """A connection to a socket."""

    def __init__(self, path: Path, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._path = path

    def connect(self) -> None:
        """See `http.client.HTTPConnection`."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
