"""One request to the API server and its answer: the seam at which tests count calls and end the operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import urllib3
from kubernetes.client import ApiClient, ApiException

from wattloop.errors import OperationError

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
READ_TIMEOUT_SECONDS = 30.0
# A write that was sent while this operator led is answered before another one can lead: see ElectionTimes.
WRITE_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        method: GET, POST, PUT, PATCH or DELETE.
        path: Address below the server's.
        query: Parameters.
        body: Body, JSON types.
        content_type: What the body is.
        accept: In which form the answer is wanted.
        timeout_seconds: How long an answer is waited for.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = JSON
    accept: str = JSON
    timeout_seconds: float = READ_TIMEOUT_SECONDS

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.method != "GET"


class StatusError(Exception):
    """The server answered with an error.

    Attributes:
        status: HTTP status.
        reason: Kubernetes' reason, such as NotFound or AlreadyExists.
        message: What it said.
    """

    def __init__(self, request: Request, status: int, reason: str, message: str) -> None:
        super().__init__(f"{request.method} {request.path}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Transport(Protocol):
    """Carries requests to an API server."""

    def __call__(self, request: Request) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            StatusError: The server answered with an error.
            OperationError: The server could not be reached, or gave no answer in time.
        """
        ...


class HttpTransport:
    """The official client's connection. Safe to use from several threads.

    Args:
        client: The client, with its credentials.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def __call__(self, request: Request) -> dict[str, Any]:
        """The answer to a request."""
        method, url, headers, body, _ = self._client.param_serialize(
            method=request.method,
            resource_path=request.path,
            query_params=list(request.query.items()),
            header_params={"Accept": request.accept, "Content-Type": request.content_type},
            body=None if request.body is None else dict(request.body),
            auth_settings=["BearerToken"],
        )
        try:
            longest = WRITE_TIMEOUT_SECONDS if request.writes else READ_TIMEOUT_SECONDS
            timeout = min(request.timeout_seconds, longest)
            answer = self._client.call_api(method, url, headers, body, _request_timeout=timeout)
            data: bytes = answer.read()  # type: ignore[no-untyped-call]
        except ApiException as error:
            raise _without_answer(request, str(error.reason)) from error
        except urllib3.exceptions.HTTPError as error:
            raise _without_answer(request, str(error)) from error
        if not 200 <= answer.status < 300:
            raise _refusal(request, answer.status, data)
        return _object(request, data)


def _object(request: Request, data: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        # A proxy's page, or an answer that was cut.
        said = " ".join(data[:200].decode("utf-8", "replace").split())
        raise _without_answer(request, f"found {said!r}, expected a JSON object")
    return parsed


def fenced(transport: Transport, may_write: Callable[[], bool]) -> Transport:
    """A transport that writes only as long as this operator leads: what it decided before it lost the lead is void."""

    def call(request: Request) -> dict[str, Any]:
        if request.writes and not may_write():
            raise OperationError(
                f"{request.method} {request.path} was left undone: this operator does not lead any more"
            )
        return transport(request)

    return call


def _without_answer(request: Request, why: str) -> OperationError:
    return OperationError(f"{request.method} {request.path}: no answer from the API server: {why}")


def _refusal(request: Request, status: int, data: bytes | None) -> StatusError | OperationError:
    try:
        said = json.loads(data or b"{}")
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    message = str(said.get("message") or (data or b"")[:512].decode("utf-8", "replace"))
    error = StatusError(request, status, str(said.get("reason") or ""), message)
    # 401: a token that is being rotated; 429 and 5xx: the server, or what stands before it, has trouble of its own.
    return OperationError(str(error)) if status in {401, 408, 429} or status >= 500 else error
