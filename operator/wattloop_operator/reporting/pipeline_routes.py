"""The routes of the plan service, under the path of the recurrence."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Request
from fastapi.responses import JSONResponse, Response

from wattloop.pipeline.plan_messages import (
    MAX_PIPELINE_MESSAGE_BYTES,
    MAX_PIPELINE_RANKS,
    Directive,
    RankRegistration,
    RankReport,
    StragglerNotice,
)
from wattloop_operator.reporting.api_forms import BODY_ERRORS, ERRORS, ErrorForm, Name, request_body, response
from wattloop_operator.reporting.pipeline_service import PipelineService
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.reporting.request_handling import (
    Token,
    awaited,
    count_request,
    peer_address,
    received,
)

PATH = "/v1/namespaces/{namespace}/recurrences/{name}/pipeline"
# The ranks of a group and of a pipeline rank get the same directive. A directive of the most clocks takes 200 kB.
MAX_CACHED_DIRECTIVES = 128
Rank = Annotated[int, Path(ge=0, lt=MAX_PIPELINE_RANKS)]
CONFLICTS: dict[int | str, dict[str, Any]] = {
    409: {
        "model": ErrorForm,
        "description": "The registration lacks an instruction, or contradicts that of another rank; both are named. Or "
        "a report has an energy that the GPUs of the rank cannot have.",
    },
}


def add_pipeline_routes(app: FastAPI, pipelines: PipelineService, limits: ReportLimits) -> None:
    """Add the routes to the reporting API."""

    def counted(token: Token, namespace: str, name: str) -> Callable[[int], None]:
        return lambda size_bytes: limits.count_pipeline_bytes(token, namespace, name, size_bytes)

    @app.put(
        PATH + "/ranks/{rank}",
        summary="Register a rank of a pipeline",
        responses={200: response(Directive), **ERRORS, **BODY_ERRORS, **CONFLICTS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(RankRegistration)},
    )
    async def register(namespace: Name, name: Name, rank: Rank, request: Request, token: Token) -> Response:
        """Register what a rank runs; the registration of another process of the rank is replaced."""
        count_request(limits, token)
        context = await awaited(pipelines.authorize(token, namespace, name, peer_address(request)))
        registration = await received(
            request, RankRegistration, MAX_PIPELINE_MESSAGE_BYTES, counted(token, namespace, name)
        )
        if registration.rank != rank:
            raise HTTPException(422, f"rank: found {registration.rank}, expected {rank} as in the path")
        return _response(await awaited(pipelines.register(context, registration)))

    @app.post(
        PATH + "/ranks/{rank}/report",
        summary="Report the iterations and measurements of a rank",
        responses={200: response(Directive), **ERRORS, **BODY_ERRORS, **CONFLICTS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(RankReport)},
    )
    async def report(namespace: Name, name: Name, rank: Rank, request: Request, token: Token) -> Response:
        """Merge a cumulative report; a repeated or late one changes nothing."""
        count_request(limits, token)
        context = await awaited(pipelines.authorize(token, namespace, name, peer_address(request)))
        message = await received(request, RankReport, MAX_PIPELINE_MESSAGE_BYTES, counted(token, namespace, name))
        return _response(await awaited(pipelines.report(context, rank, message)))

    @app.post(
        PATH + "/straggler",
        summary="Announce a straggler",
        responses={200: response(StragglerNotice), **ERRORS, **BODY_ERRORS},
        response_class=JSONResponse,
        openapi_extra={"requestBody": request_body(StragglerNotice)},
    )
    async def straggler(namespace: Name, name: Name, request: Request, token: Token) -> JSONResponse:
        """Announce that iterations take longer, or that they no longer do; the answer repeats the announcement."""
        count_request(limits, token)
        context = await awaited(pipelines.authorize(token, namespace, name, peer_address(request)))
        notice = await received(request, StragglerNotice, MAX_PIPELINE_MESSAGE_BYTES, counted(token, namespace, name))
        await awaited(pipelines.receive_notice(context, notice))
        return JSONResponse(notice.to_json())


def _response(directive: Directive) -> Response:
    return Response(_body(directive), media_type="application/json")


@lru_cache(MAX_CACHED_DIRECTIVES)
def _body(directive: Directive) -> bytes:
    return json.dumps(directive.to_json(), separators=(",", ":")).encode()
