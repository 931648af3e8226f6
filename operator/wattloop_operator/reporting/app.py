"""The reporting API's transport: its routes, bounded bodies, every refusal with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, HTTPException, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from wattloop.errors import OperationError
from wattloop.message_fields import MessageError
from wattloop.messages import MAX_REPORT_BYTES, Report
from wattloop.node_energy import MAX_NODE_REPORT_BYTES, NodeReport
from wattloop_operator.reporting.body import json_body
from wattloop_operator.reporting.forms import AnswerForm, DecisionForm, ErrorForm, decision_form, report_form
from wattloop_operator.reporting.interfaces import (
    BearerToken,
    NodeOwnershipError,
    PodOwnershipError,
    ProgressTooLargeError,
    RecurrenceOwnershipError,
    TooManyRequestsError,
    UnknownCallerError,
)
from wattloop_operator.reporting.limits import ReportLimits
from wattloop_operator.reporting.node_forms import NodeAnswerForm, node_answer_form, node_report_form
from wattloop_operator.reporting.nodes import NodeService
from wattloop_operator.reporting.progress_writes import UnknownRecurrenceError
from wattloop_operator.reporting.service import ReportService

Result = TypeVar("Result")
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Name = Annotated[str, Path(min_length=1, max_length=63, pattern=NAME_PATTERN)]
NODE_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
Node = Annotated[str, Path(min_length=1, max_length=253, pattern=NODE_PATTERN)]
BEARER = HTTPBearer(auto_error=False, description="A token with the audience of the reporting API.")


async def _bearer_token(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> BearerToken:
    return BearerToken("" if credentials is None else credentials.credentials)


Token = Annotated[BearerToken, Depends(_bearer_token)]
REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorForm, "description": "The token is missing or cannot be trusted."},
    403: {"model": ErrorForm, "description": "The recurrence is not the caller's own."},
    404: {"model": ErrorForm, "description": "There is no such recurrence."},
    422: {"model": ErrorForm, "description": "A name is none of Kubernetes', or the body is no report; which field."},
    429: {
        "model": ErrorForm,
        "description": "Too many requests; the header Retry-After says after how many seconds to send the next.",
        "headers": {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds to wait."}},
    },
    503: {"model": ErrorForm, "description": "It cannot be answered now; try again later."},
}
NODE_REFUSALS: dict[int | str, dict[str, Any]] = {
    **{code: REFUSALS[code] for code in (401, 422, 429, 503)},
    403: {"model": ErrorForm, "description": "The caller is no agent of this node, or a pod is on another node."},
}
BODY_REFUSALS: dict[int | str, dict[str, Any]] = {
    413: {"model": ErrorForm, "description": "The body, or the progress with it, has too many bytes."},
    415: {"model": ErrorForm, "description": "The body is not application/json."},
}


def create_app(service: ReportService, nodes: NodeService | None = None) -> FastAPI:
    """The ASGI application of the reporting API.

    Args:
        service: Takes in the reports of training processes.
        nodes: Takes in those of nodes' agents; None: there are none, as on a laptop.
    """
    app = FastAPI(
        title="Wattloop reporting API",
        version="v1",
        description="Training processes report their progress and energy here, and hear whether to stop; nodes' "
        "agents report what each pod has used.",
        docs_url=None,
        redoc_url=None,
    )

    app.add_exception_handler(RequestValidationError, _refused)

    @app.post(
        "/v1/namespaces/{namespace}/recurrences/{name}/progress",
        summary="Report the progress of an attempt",
        responses={**REFUSALS, **BODY_REFUSALS},
        openapi_extra={"requestBody": report_form()},
    )
    async def progress(namespace: Name, name: Name, request: Request, token: Token) -> AnswerForm:
        """Take in a cumulative report; repeated, late or out of order, it changes nothing that newer ones said."""
        _count(service.limits, token)
        await _answered(lambda: service.authorize(token, namespace, name, _address(request)))
        try:
            report = Report.from_json(await json_body(request, MAX_REPORT_BYTES))
        except MessageError as error:
            raise HTTPException(422, str(error)) from error
        answer = await _answered(lambda: service.take(namespace, name, report))
        return AnswerForm(stop=answer.stop, reason=answer.reason)

    @app.get(
        "/v1/namespaces/{namespace}/recurrences/{name}/decision",
        summary="Look up the decision of an attempt",
        responses=REFUSALS,
    )
    async def decision(namespace: Name, name: Name, request: Request, token: Token) -> DecisionForm:
        """The batch size and power limit that were decided for this attempt, and why."""
        _count(service.limits, token)
        await _answered(lambda: service.authorize(token, namespace, name, _address(request)))
        return decision_form(await _answered(lambda: service.look_up(namespace, name)))

    if nodes is not None:
        _add_nodes(app, nodes, service.limits)
    return app


def _add_nodes(app: FastAPI, nodes: NodeService, limits: ReportLimits) -> None:
    @app.post(
        "/v1/nodes/{node}/energy",
        summary="Report what the pods of a node have used",
        responses={**NODE_REFUSALS, **BODY_REFUSALS},
        openapi_extra={"requestBody": node_report_form()},
    )
    async def energy(node: Node, request: Request, token: Token) -> NodeAnswerForm:
        """Take in a cumulative report of a node's agent; repeated or late, it changes nothing that others said."""
        # Its reports may be large: who is no agent need not have one read.
        _count(limits, token)
        await _answered(lambda: nodes.authorize(token, node, _address(request)))
        try:
            report = NodeReport.from_json(await json_body(request, MAX_NODE_REPORT_BYTES))
        except MessageError as error:
            raise HTTPException(422, str(error)) from error
        return node_answer_form(await _answered(lambda: nodes.take(node, report)))


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    """Say what is wrong with a path in one sentence, as every other refusal does."""
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    text = "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in problems)
    return JSONResponse({"detail": text}, 422)


def _count(limits: ReportLimits, token: BearerToken) -> None:
    """Count a request of a token, before anything else is done for it."""
    try:
        limits.count_token(token)
    except TooManyRequestsError as error:
        raise _too_many(error) from error


def _too_many(error: TooManyRequestsError) -> HTTPException:
    return HTTPException(429, str(error), {"Retry-After": str(error.retry_after_seconds)})


def _address(request: Request) -> str:
    return "" if request.client is None else request.client.host


async def _answered(call: Callable[[], Result]) -> Result:
    try:
        return await run_in_threadpool(call)
    except UnknownCallerError as error:
        raise HTTPException(401, str(error), {"WWW-Authenticate": "Bearer"}) from error
    except (RecurrenceOwnershipError, NodeOwnershipError, PodOwnershipError) as error:
        raise HTTPException(403, str(error)) from error
    except UnknownRecurrenceError as error:
        raise HTTPException(404, str(error)) from error
    except TooManyRequestsError as error:
        raise _too_many(error) from error
    except ProgressTooLargeError as error:
        raise HTTPException(413, str(error)) from error
    except OperationError as error:
        raise HTTPException(503, str(error), {"Retry-After": "5"}) from error
