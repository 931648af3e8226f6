"""The reporting API's transport: its routes, bounded bodies, every refusal with its reason."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from wattloop.messages import MAX_REPORT_BYTES, Answer, Report
from wattloop.node_energy import MAX_NODE_REPORT_BYTES, NodeAnswer, NodeReport
from wattloop.wire_form import WireForm
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reporting.limits import ReportLimits
from wattloop_operator.reporting.nodes import NodeService
from wattloop_operator.reporting.request_handling import (
    Token,
    count_request,
    in_thread,
    peer_address,
    received,
    validation_error_response,
)
from wattloop_operator.reporting.service import ReportService

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Name = Annotated[str, Path(min_length=1, max_length=63, pattern=NAME_PATTERN)]
NODE_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
Node = Annotated[str, Path(min_length=1, max_length=253, pattern=NODE_PATTERN)]


class ErrorForm(BaseModel):
    """The body of an error response."""

    detail: str = Field(description="What is wrong, and what is expected.")


class DecisionForm(BaseModel):
    """The decision of an attempt."""

    batch_size: int = Field(description="The batch size to train with.")
    power_limit_watts: int | None = Field(description="The power limit to hold on each GPU; null for none.")
    profile_power_limits: bool = Field(description="Whether the attempt measures the power limits first.")
    max_epochs: int = Field(description="Epochs after which the attempt ends without the target.")
    reason: str = Field(description="Why this batch size.")


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

    app.add_exception_handler(RequestValidationError, validation_error_response)

    @app.post(
        "/v1/namespaces/{namespace}/recurrences/{name}/progress",
        summary="Report the progress of an attempt",
        responses={200: _answers(Answer), **REFUSALS, **BODY_REFUSALS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": _body(Report)},
    )
    async def progress(namespace: Name, name: Name, request: Request, token: Token) -> JSONResponse:
        """Take in a cumulative report; repeated, late or out of order, it changes nothing that newer ones said."""
        count_request(service.limits, token)
        await in_thread(lambda: service.authorize(token, namespace, name, peer_address(request)))
        report = await received(request, Report, MAX_REPORT_BYTES)
        answer = await in_thread(lambda: service.take(namespace, name, report))
        return JSONResponse(answer.to_json())

    @app.get(
        "/v1/namespaces/{namespace}/recurrences/{name}/decision",
        summary="Look up the decision of an attempt",
        responses=REFUSALS,
    )
    async def decision(namespace: Name, name: Name, request: Request, token: Token) -> DecisionForm:
        """The batch size and power limit that were decided for this attempt, and why."""
        count_request(service.limits, token)
        await in_thread(lambda: service.authorize(token, namespace, name, peer_address(request)))
        return _decision(await in_thread(lambda: service.look_up(namespace, name)))

    if nodes is not None:
        _add_nodes(app, nodes, service.limits)
    return app


def _add_nodes(app: FastAPI, nodes: NodeService, limits: ReportLimits) -> None:
    @app.post(
        "/v1/nodes/{node}/energy",
        summary="Report what the pods of a node have used",
        responses={200: _answers(NodeAnswer), **NODE_REFUSALS, **BODY_REFUSALS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": _body(NodeReport)},
    )
    async def energy(node: Node, request: Request, token: Token) -> JSONResponse:
        """Take in a cumulative report of a node's agent; repeated or late, it changes nothing that others said."""
        # Its reports may be large: who is no agent need not have one read.
        count_request(limits, token)
        await in_thread(lambda: nodes.authorize(token, node, peer_address(request)))
        report = await received(request, NodeReport, MAX_NODE_REPORT_BYTES)
        answer = await in_thread(lambda: nodes.take(node, report))
        return JSONResponse(answer.to_json())


def _decision(recurrence: TrainingRecurrence) -> DecisionForm:
    spec = recurrence.spec
    return DecisionForm(
        batch_size=spec.batch_size,
        power_limit_watts=spec.power_limit_watts,
        profile_power_limits=spec.profile_power_limits,
        max_epochs=spec.max_epochs,
        reason=spec.decision.reason,
    )


def _body(form: type[WireForm]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": form.json_schema()}}}


def _answers(form: type[WireForm]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": form.json_schema()}}}
