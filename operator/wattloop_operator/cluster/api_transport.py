"""Requests to the API server and their responses.

Metrics count requests here, fencing drops writes here, and tests kill the operator here.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import urllib3
from kubernetes.client import ApiClient, ApiException

from wattloop.errors import OperationError
from wattloop_operator.cluster.bounded_json import UnreadableError, parse, parse_response

logger = logging.getLogger(__name__)

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
KEY_SET = "application/jwk-set+json"
MERGE = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
CONNECT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0
# The API server sends a bookmark a minute.
WATCH_SILENCE_SECONDS = 70.0
# A write that the leader sent is answered before another operator can lead: see ElectionTimes.
WRITE_TIMEOUT_SECONDS = 5.0
# The largest object has 1.5 MiB.
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
# The API server stores no object of this size.
MAX_LINE_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
TOO_MANY_REQUESTS, UNAUTHORIZED = 429, 401
# An API server asks for a second. What it refuses longer is repeated by the work queue, whose pauses grow.
MAX_RETRIES = 3
DEFAULT_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 2.0


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        method: GET, POST, PUT, PATCH or DELETE.
        path: Path of the URL.
        query: Query parameters.
        body: JSON body; None without one.
        content_type: Content type of the body.
        accept: Accepted content type of the response.
        timeout_seconds: Timeout of the response; `HttpTransport` bounds it.
        parse: Parses the body of the response.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = JSON
    accept: str = JSON
    timeout_seconds: float = READ_TIMEOUT_SECONDS
    parse: Callable[[bytes], Any] = parse_response

    @property
    def writes(self) -> bool:
        """Whether it may change an object."""
        return self.method != "GET"


class StatusError(Exception):
    """The API server responded with an error status.

    Attributes:
        status: HTTP status.
        reason: Reason of the Kubernetes Status, such as NotFound or AlreadyExists.
    """

    def __init__(self, request: Request, status: int, reason: str, message: str) -> None:
        super().__init__(f"{request.method} {request.path}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NoResultError(OperationError):
    """A request without a result.

    Attributes:
        status: HTTP status of the response; None without one.
        pause_seconds: How long the server asks to wait before the next request.
    """

    def __init__(self, message: str, status: int | None = None, pause_seconds: float = DEFAULT_PAUSE_SECONDS) -> None:
        super().__init__(message)
        self.status = status
        self.pause_seconds = pause_seconds


class UnavailableError(NoResultError):
    """The API server could not be reached, did not respond in time, or has a temporary problem: waiting may help."""


class UnreadableResponseError(OperationError):
    """The response is JSON that exceeds a bound, such as an object that is nested too deep.

    Attributes:
        problem: Which bound.
    """

    def __init__(self, request: Request, problem: str) -> None:
        super().__init__(f"{request.method} {request.path}: the response cannot be read: {problem}")
        self.problem = problem


class ResponseTooLargeError(Exception):
    """The response has more than `MAX_RESPONSE_BYTES`; a list with fewer objects a page has less."""


Transport = Callable[[Request], dict[str, Any]]
"""Carries a request to an API server, and returns the JSON object of the response. It raises StatusError for an error
status, UnavailableError if the server cannot be reached or has a temporary problem, UnreadableResponseError and
ResponseTooLargeError for a response beyond a bound, and OperationError if there is no TLS connection, the credentials
are not accepted, or the response is no JSON."""


Read = TypeVar("Read")


class HttpTransport:
    """A transport over the official client. Thread-safe."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def __call__(self, request: Request) -> dict[str, Any]:
        """See `Transport`."""
        max_timeout = WRITE_TIMEOUT_SECONDS if request.writes else READ_TIMEOUT_SECONDS
        response, data = self._send(request, min(request.timeout_seconds, max_timeout), _read)
        if not 200 <= response.status < 300:
            raise _status_error(request, response, data)
        return _object(request, data)

    def watch(self, request: Request, silence_seconds: float = WATCH_SILENCE_SECONDS) -> Watch:
        """Open a watch, or another response without an end, in which the server is silent for so long at most.

        Raises:
            StatusError: The API server refuses it, a watch with 410 if it no longer has the version.
            OperationError: As a `Transport`.
        """

        def opened(_: Request, response: urllib3.BaseHTTPResponse) -> urllib3.BaseHTTPResponse | bytes:
            # A kubelet's text may follow the API server's status.
            return response if response.status == 200 else response.read(MAX_ERROR_BYTES)

        response, found = self._send(request, (CONNECT_SECONDS, silence_seconds), opened)
        if isinstance(found, bytes):
            raise _status_error(request, response, found)
        return Watch(request, found)

    def _send(
        self,
        request: Request,
        timeout: float | tuple[float, float],
        read: Callable[[Request, urllib3.BaseHTTPResponse], Read],
    ) -> tuple[urllib3.BaseHTTPResponse, Read]:
        """The response, and what is read of it."""
        method, url, headers, body, _ = self._client.param_serialize(
            method=request.method,
            resource_path=request.path,
            query_params=list(request.query.items()),
            header_params={"Accept": request.accept, "Content-Type": request.content_type},
            body=None if request.body is None else dict(request.body),
            auth_settings=["BearerToken"],
        )
        try:
            response = self._client.call_api(method, url, headers, body, _request_timeout=timeout)
            return response.response, read(request, response.response)
        except ApiException as error:
            raise _no_response(request, str(error.reason)) from error
        except urllib3.exceptions.HTTPError as error:
            if _is_tls_problem(error):
                raise OperationError(
                    f"{request.method} {request.path}: no TLS connection to the API server: {error}; check the server "
                    "and the certificate-authority of the kubeconfig"
                ) from error
            raise UnavailableError(str(_no_response(request, str(error)))) from error


class Watch:
    """The open response of a watch."""

    def __init__(self, request: Request, response: urllib3.BaseHTTPResponse) -> None:
        self._request = request
        self._response = response

    def lines(self) -> Iterator[bytes]:
        """The lines as they arrive, until the server ends the watch; one that is too long is left out.

        Raises:
            UnavailableError: The connection is interrupted, or silent for too long.
        """
        pending = bytearray()
        for data in self.chunks():
            pending += data
            if b"\n" not in data and len(pending) <= MAX_LINE_BYTES:
                continue
            *lines, rest = bytes(pending).split(b"\n")
            pending = bytearray(rest if len(rest) <= MAX_LINE_BYTES else b"")
            yield from filter(None, lines)

    def chunks(self) -> Iterator[bytes]:
        """What arrives, as it arrives; see `lines`."""
        try:
            while data := self._response.read1(CHUNK_BYTES):
                yield data
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise UnavailableError(f"{self._request.path}: the response is interrupted: {error}") from error
        finally:
            self._response.close()

    def end(self) -> None:
        """End it from another thread, which may wait for its next line."""
        # It may have ended by itself.
        with contextlib.suppress(ValueError, OSError):
            self._response.shutdown()


def _read(request: Request, response: urllib3.BaseHTTPResponse) -> bytes:
    data = response.read(MAX_RESPONSE_BYTES + 1)
    if len(data) > MAX_RESPONSE_BYTES:
        response.close()
        raise ResponseTooLargeError(f"{request.method} {request.path}: more than {MAX_RESPONSE_BYTES} bytes")
    response.release_conn()
    return data


def _object(request: Request, data: bytes) -> dict[str, Any]:
    try:
        parsed = request.parse(data)
    except UnreadableError as error:
        if data.lstrip()[:1] == b"{":
            raise UnreadableResponseError(request, str(error)) from error
        parsed = None
    if not isinstance(parsed, dict):
        # A proxy's page, or a truncated response.
        found = " ".join(data[:200].decode("utf-8", "replace").split())
        raise _no_response(request, f"found {found!r}, expected a JSON object")
    return parsed


def fenced(transport: Transport, may_write: Callable[[], bool]) -> Transport:
    """A transport that drops writes once this operator no longer leads, because its decisions are void then."""

    def call(request: Request) -> dict[str, Any]:
        if request.writes and not may_write():
            raise OperationError(f"{request.method} {request.path} was not sent: this operator no longer leads")
        return transport(request)

    return call


def retrying(transport: Transport, sleep: Callable[[float], None] = time.sleep) -> Transport:
    """A transport that repeats what an API server with too many requests refuses (429), as client-go does.

    Args:
        transport: Carries each request.
        sleep: Waits for a number of seconds.
    """

    def call(request: Request) -> dict[str, Any]:
        for _ in range(MAX_RETRIES):
            try:
                return transport(request)
            except UnavailableError as error:
                if error.status != TOO_MANY_REQUESTS or error.pause_seconds > MAX_PAUSE_SECONDS:
                    raise
                logger.debug("%s; repeated in %.0f s", error, error.pause_seconds)
                sleep(error.pause_seconds)
        return transport(request)

    return call


def _no_response(request: Request, cause: str) -> OperationError:
    return OperationError(f"{request.method} {request.path}: no response from the API server: {cause}")


def _is_tls_problem(error: urllib3.exceptions.HTTPError) -> bool:
    """Whether the server answered, but not with TLS, or with a certificate that is not trusted."""
    reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
    cause = reason.args[0] if isinstance(reason, urllib3.exceptions.SSLError) and reason.args else None
    # A proxy closes the connection while the server behind it is away.
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError)


def _status_error(
    request: Request, response: urllib3.BaseHTTPResponse, data: bytes | None
) -> StatusError | OperationError:
    status = response.status
    try:
        body = parse(data or b"{}")
    except UnreadableError:
        body = {}
    body = body if isinstance(body, dict) else {}
    message = str(body.get("message") or (data or b"")[:512].decode("utf-8", "replace"))
    error = StatusError(request, status, str(body.get("reason") or ""), message)
    if status == UNAUTHORIZED:
        # Temporary while a token is rotated.
        return NoResultError(f"{error}; check the user of the kubeconfig, or the pod's service account", status)
    if status not in {408, TOO_MANY_REQUESTS} and status < 500:
        return error
    # While the server, or a proxy before it, has a problem.
    asked = response.headers.get("Retry-After", "")
    return UnavailableError(str(error), status, float(asked) if asked.isdecimal() else DEFAULT_PAUSE_SECONDS)
