"""Forms that several routes share: path parameters, errors, and schemas of bodies."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, Field

from wattloop.wire.wire_form import WireForm
from wattloop_operator.api.field_types import DNS_LABEL_PATTERN

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
    409: {"model": ErrorForm, "description": "The attempt has another reporting source than KubeflowTrainer."},
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
