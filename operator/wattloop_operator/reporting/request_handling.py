"""Request handling for all routes: path parameters, tokens, bounded bodies, blocking calls.

What fails raises an HTTPException, whose status code depends on the error.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, HTTPException, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from wattloop.errors import OperationError
from wattloop.wire.message_fields import MessageError, json_problem
from wattloop.wire.wire_form import WireForm
from wattloop_operator.api.field_types import DNS_LABEL_PATTERN
from wattloop_operator.reconcile.pipeline.registrations import RegistrationConflictError
from wattloop_operator.reporting.interfaces import (
    BearerToken,
    OwnershipError,
    ProgressTooLargeError,
    TooManyRequestsError,
    UnknownCallerError,
    UnknownRecurrenceError,
    WrongSourceError,
)
from wattloop_operator.reporting.report_limits import ReportLimits

Result = TypeVar("Result")
Form = TypeVar("Form", bound=WireForm)
RETRY_SECONDS = 5


class BearerScheme(HTTPBearer):
    """The caller's token, in the OpenAPI description too; without one it is empty."""

    async def __call__(self, request: Request) -> BearerToken:  # type: ignore[override]
        """See `HTTPBearer`. One dependency instead of two: each costs a request a tenth of its processor time."""
        credentials = await super().__call__(request)
        return BearerToken("" if credentials is None else credentials.credentials)


BEARER = BearerScheme(
    scheme_name="HTTPBearer", auto_error=False, description="A token with the audience of the reporting API."
)
Token = Annotated[BearerToken, Depends(BEARER)]


def count_request(limits: ReportLimits, token: BearerToken) -> None:
    """Count a request of a token, before anything else is done for it."""
    try:
        limits.count_token(token)
    except TooManyRequestsError as error:
        raise _too_many_requests(error) from error


def peer_address(request: Request) -> str:
    """The address that the request came from; empty if it is not known."""
    return "" if request.client is None else request.client.host


async def received(
    request: Request, form: type[Form], max_bytes: int, count_bytes: Callable[[int], None] = lambda _: None
) -> Form:
    """Read a request's body as a wire form; see `json_body`."""
    try:
        return form.from_json(await json_body(request, max_bytes, count_bytes))
    except MessageError as error:
        raise HTTPException(422, str(error)) from error


async def json_body(request: Request, max_bytes: int, count_bytes: Callable[[int], None] = lambda _: None) -> Any:
    """Read a request's body as JSON, and never hold more of it than allowed.

    FastAPI would read the body without a bound and accept the constant NaN.

    `count_bytes`: called with the size before the JSON is read; raises TooManyRequestsError beyond a limit.

    Raises:
        HTTPException: 413 for a larger body, 429 for a size beyond a limit, 415 for another content
            type, 422 for invalid JSON, 400 for a connection that ends before the body does.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "expected the content type application/json")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect as error:
        # The client does not receive this; unhandled, the error would log a traceback for each such
        # client.
        raise HTTPException(400, "the connection ended before the body did") from error
    try:
        count_bytes(len(body))
    except TooManyRequestsError as error:
        raise _too_many_requests(error) from error
    try:
        return json.loads(bytes(body), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise HTTPException(422, f"expected JSON: {json_problem(error)}") from error


async def in_thread(call: Callable[[], Result]) -> Result:
    """Run a blocking call in a thread and turn its errors into responses."""
    return await awaited(run_in_threadpool(call))


async def awaited(call: Awaitable[Result]) -> Result:
    """Await a call and turn its errors into responses."""
    try:
        return await call
    except UnknownCallerError as error:
        raise HTTPException(401, str(error), {"WWW-Authenticate": "Bearer"}) from error
    except OwnershipError as error:
        raise HTTPException(403, str(error)) from error
    except UnknownRecurrenceError as error:
        raise HTTPException(404, str(error)) from error
    except (WrongSourceError, RegistrationConflictError) as error:
        raise HTTPException(409, str(error)) from error
    except TooManyRequestsError as error:
        raise _too_many_requests(error) from error
    except ProgressTooLargeError as error:
        raise HTTPException(413, str(error)) from error
    except OperationError as error:
        raise HTTPException(503, str(error), {"Retry-After": str(RETRY_SECONDS)}) from error


async def validation_error_response(_request: Request, error: Exception) -> JSONResponse:
    """Say in one sentence what is wrong with a path, in the form of every other error."""
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    text = "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in problems)
    return JSONResponse({"detail": text}, 422)


def _too_many_requests(error: TooManyRequestsError) -> HTTPException:
    return HTTPException(429, str(error), {"Retry-After": str(error.retry_after_seconds)})


def _too_large(max_bytes: int) -> HTTPException:
    return HTTPException(413, f"a report has at most {max_bytes} bytes", {"Connection": "close"})


def _reject_constant(name: str) -> None:
    raise ValueError(f"found {name}, expected a finite number")


Name = Annotated[str, Path(min_length=1, max_length=63, pattern=DNS_LABEL_PATTERN)]
NODE_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
Node = Annotated[str, Path(min_length=1, max_length=253, pattern=NODE_PATTERN)]


class ErrorForm(BaseModel):
    """The body of an error response."""

    detail: str = Field(description="What is wrong, and what is expected.")


ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorForm, "description": "The token is missing or invalid."},
    403: {"model": ErrorForm, "description": "The caller does not run this recurrence."},
    404: {"model": ErrorForm, "description": "The recurrence does not exist."},
    422: {"model": ErrorForm, "description": "A name in the path or a field of the body is invalid."},
    429: {
        "model": ErrorForm,
        "description": "Too many requests; the header Retry-After has the delay until the next one.",
        "headers": {
            "Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "The delay in seconds."}
        },
    },
    503: {
        "model": ErrorForm,
        "description": "The request failed for now; retry after the seconds in the header Retry-After.",
    },
}
NODE_ERRORS: dict[int | str, dict[str, Any]] = {
    **{code: ERRORS[code] for code in (401, 422, 429, 503)},
    403: {"model": ErrorForm, "description": "The caller is not the agent of this node, or a pod is on another node."},
}
SOURCE_ERRORS: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorForm, "description": "The attempt has another reporting source than KubeflowTrainer."}
}
BODY_ERRORS: dict[int | str, dict[str, Any]] = {
    411: {"model": ErrorForm, "description": "The body has no Content-Length."},
    413: {"model": ErrorForm, "description": "The body, or the progress that it results in, is too large."},
    415: {"model": ErrorForm, "description": "The body is not application/json."},
}


def request_body(form: type[WireForm]) -> dict[str, Any]:
    """The OpenAPI description of a request's body."""
    return {"required": True, "content": {"application/json": {"schema": form.json_schema()}}}


def response(form: type[WireForm]) -> dict[str, Any]:
    """The OpenAPI description of a response with this body."""
    return {"content": {"application/json": {"schema": form.json_schema()}}}
