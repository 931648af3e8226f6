"""The reporting API's routes, and their OpenAPI description."""

from __future__ import annotations

import json
from functools import lru_cache
from types import SimpleNamespace
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from wattloop.pipeline.plan_messages import (
    MAX_PIPELINE_MESSAGE_BYTES,
    MAX_PIPELINE_RANKS,
    Directive,
    RankRegistration,
    RankReport,
    StragglerNotice,
)
from wattloop.wire.node_energy import MAX_NODE_REPORT_BYTES, NodeAnswer, NodeReport
from wattloop.wire.training_messages import MAX_REPORT_BYTES, Answer, Report
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineState
from wattloop_operator.reporting.nodes import NodeService
from wattloop_operator.reporting.pipeline_commits import ReportOfRank
from wattloop_operator.reporting.pipeline_service import PipelineService
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.reporting.request_handling import (
    BODY_ERRORS,
    ERRORS,
    NODE_ERRORS,
    SOURCE_ERRORS,
    ErrorForm,
    Form,
    Name,
    Node,
    Token,
    awaited,
    count_request,
    in_thread,
    peer_address,
    received,
    request_body,
    response,
    validation_error_response,
)
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.reporting.trainer_status import TrainerStatusMessage


class DecisionForm(BaseModel):
    """The decision of an attempt."""

    batch_size: int = Field(description="The batch size to train with.")
    parameters: dict[str, str] = Field(description="Values of the further parameters by name.")
    power_limit_watts: int | None = Field(description="The power limit to hold on each GPU; null for none.")
    profile_power_limits: bool = Field(description="Whether the attempt measures the power limits first.")
    max_epochs: int = Field(description="Epochs after which the attempt ends without the target.")
    reason: str = Field(description="Why this batch size.")


def create_app(
    service: ReportService, nodes: NodeService | None = None, pipelines: PipelineService | None = None
) -> FastAPI:
    """The ASGI application of the reporting API.

    `nodes`: handles the reports of node agents; None if there are none, as in the local mode. `pipelines`: handles the
    messages of a pipeline's ranks; None if pipelines are not planned.
    """
    app = FastAPI(
        title="Wattloop reporting API",
        version="v1",
        description="Training processes report their progress and energy and learn whether to stop; node agents report "
        "the energy of each pod; the ranks of a pipeline report their instructions and get clocks.",
        docs_url=None,
        redoc_url=None,
    )

    app.add_exception_handler(RequestValidationError, validation_error_response)

    @app.post(
        "/v1/namespaces/{namespace}/recurrences/{name}/progress",
        summary="Report the progress of an attempt",
        responses={200: response(Answer), **ERRORS, **BODY_ERRORS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(Report)},
    )
    async def progress(namespace: Name, name: Name, request: Request, token: Token) -> JSONResponse:
        """Merge a cumulative report; a repeated, late or reordered one changes nothing.

        The answer to a rank that asks for a verdict waits for it, for at most 20 s.
        """
        count_request(service.limits, token)
        pod_uid = await in_thread(lambda: service.authorize(token, namespace, name, peer_address(request)))
        report = await received(request, Report, MAX_REPORT_BYTES)
        answer = await in_thread(lambda: service.receive(namespace, name, report, pod_uid))
        epoch = report.verdict_epoch
        if epoch is not None and answer.goes_on_after(epoch) is None:
            answer = await service.waits.first_answer(
                (namespace, name),
                lambda known: known.goes_on_after(epoch) is not None,
                lambda: in_thread(lambda: service.present_answer(namespace, name, report)),
            )
        return JSONResponse(answer.to_json())

    @app.post(
        "/v1/namespaces/{namespace}/recurrences/{name}/trainer-status",
        summary="Report the status of an attempt as to Kubeflow Trainer",
        responses={200: response(TrainerStatusMessage), **ERRORS, **BODY_ERRORS, **SOURCE_ERRORS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(TrainerStatusMessage)},
    )
    async def trainer_status(namespace: Name, name: Name, request: Request, token: Token) -> JSONResponse:
        """Merge the status of a callback for Kubeflow Trainer; the answer repeats it, as Kubeflow's does."""
        count_request(service.limits, token)
        pod_uid = await in_thread(lambda: service.authorize(token, namespace, name, peer_address(request)))
        message = await received(request, TrainerStatusMessage, MAX_REPORT_BYTES)
        await in_thread(lambda: service.receive_status(namespace, name, message.trainerStatus, pod_uid))
        return JSONResponse(message.to_json())

    @app.get(
        "/v1/namespaces/{namespace}/recurrences/{name}/decision",
        summary="Get the decision of an attempt",
        responses=ERRORS,
    )
    async def decision(namespace: Name, name: Name, request: Request, token: Token) -> DecisionForm:
        """The batch size and the power limit of this attempt, and the reason for them."""
        count_request(service.limits, token)
        await in_thread(lambda: service.authorize(token, namespace, name, peer_address(request)))
        recurrence = await in_thread(lambda: service.recurrence(namespace, name))
        spec = recurrence.spec
        return DecisionForm(
            batch_size=spec.batch_size,
            parameters=spec.parameters,
            power_limit_watts=spec.power_limit_watts,
            profile_power_limits=spec.profile_power_limits,
            max_epochs=spec.max_epochs,
            reason=spec.decision.reason,
        )

    if nodes is not None:
        _add_nodes(app, nodes, service.limits)
    if pipelines is not None:
        add_pipeline_routes(app, pipelines, service.limits)
    return app


def _add_nodes(app: FastAPI, nodes: NodeService, limits: ReportLimits) -> None:
    @app.post(
        "/v1/nodes/{node}/energy",
        summary="Report the energy of a node's pods",
        responses={200: response(NodeAnswer), **NODE_ERRORS, **BODY_ERRORS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(NodeReport)},
    )
    async def energy(node: Node, request: Request, token: Token) -> JSONResponse:
        """Store a cumulative report of an agent; a repeated or late one changes nothing."""
        # Node reports may be large, so the body is read only once the caller is authorized.
        count_request(limits, token)
        await in_thread(lambda: nodes.authorize(token, node, peer_address(request)))
        report = await received(
            request, NodeReport, MAX_NODE_REPORT_BYTES, lambda size_bytes: limits.count_bytes(token, size_bytes)
        )
        answer = await in_thread(lambda: nodes.receive(node, report))
        return JSONResponse(answer.to_json())


def openapi_text() -> str:
    """The OpenAPI description of the reporting API (docs/reference/reporting-api.json)."""
    # The routes keep the services, and call none of them while they are described.
    services: Any = SimpleNamespace(limits=None)
    document = create_app(services, services, services).openapi()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


PATH = "/v1/namespaces/{namespace}/recurrences/{name}/pipeline"
# The ranks of a group and of a pipeline rank get the same directive. A directive of the most clocks takes 200 kB.
MAX_CACHED_DIRECTIVES = 128
Rank = Annotated[int, Path(ge=0, lt=MAX_PIPELINE_RANKS)]
CONFLICTS: dict[int | str, dict[str, Any]] = {
    409: {
        "model": ErrorForm,
        "description": "The registration lacks an instruction, or contradicts that of another rank; both are named. Or "
        "a report has an energy that the GPUs of the rank cannot have.",
    }
}


def add_pipeline_routes(app: FastAPI, pipelines: PipelineService, limits: ReportLimits) -> None:
    """Add the routes to the reporting API."""

    async def of_caller(
        request: Request, form: type[Form], namespace: str, name: str, token: Token
    ) -> tuple[PipelineState | None, Form]:
        """What the recurrence says of the pipeline, and the message; the body is read once the caller is authorized."""
        count_request(limits, token)
        new = await awaited(pipelines.authorize(token, namespace, name, peer_address(request)))

        def count(size_bytes: int) -> None:
            limits.count_pipeline_bytes(token, namespace, name, size_bytes)

        return new, await received(request, form, MAX_PIPELINE_MESSAGE_BYTES, count)

    @app.put(
        PATH + "/ranks/{rank}",
        summary="Register a rank of a pipeline",
        responses={200: response(Directive), **ERRORS, **BODY_ERRORS, **CONFLICTS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(RankRegistration)},
    )
    async def register(namespace: Name, name: Name, rank: Rank, request: Request, token: Token) -> Response:
        """Register what a rank runs; the registration of another process of the rank is replaced."""
        new, registration = await of_caller(request, RankRegistration, namespace, name, token)
        if registration.rank != rank:
            raise HTTPException(422, f"rank: found {registration.rank}, expected {rank} as in the path")
        return _response(await awaited(pipelines.exchange(new, registration)))

    @app.post(
        PATH + "/ranks/{rank}/report",
        summary="Report the iterations and measurements of a rank",
        responses={200: response(Directive), **ERRORS, **BODY_ERRORS, **CONFLICTS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(RankReport)},
    )
    async def report(namespace: Name, name: Name, rank: Rank, request: Request, token: Token) -> Response:
        """Merge a cumulative report; a repeated or late one changes nothing."""
        new, message = await of_caller(request, RankReport, namespace, name, token)
        return _response(await awaited(pipelines.exchange(new, ReportOfRank(rank, message))))

    @app.post(
        PATH + "/straggler",
        summary="Announce a straggler",
        responses={200: response(StragglerNotice), **ERRORS, **BODY_ERRORS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(StragglerNotice)},
    )
    async def straggler(namespace: Name, name: Name, request: Request, token: Token) -> JSONResponse:
        """Announce that iterations take longer, or that they no longer do; the answer repeats the announcement."""
        new, notice = await of_caller(request, StragglerNotice, namespace, name, token)
        await awaited(pipelines.exchange(new, notice))
        return JSONResponse(notice.to_json())


def _response(directive: Directive) -> Response:
    return Response(_body(directive), media_type="application/json")


@lru_cache(MAX_CACHED_DIRECTIVES)
def _body(directive: Directive) -> bytes:
    return json.dumps(directive.to_json(), separators=(",", ":")).encode()
