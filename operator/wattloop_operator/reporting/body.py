"""Reading a request's body without ever holding more of it than allowed."""

from __future__ import annotations

import json
from typing import Any

from fastapi import HTTPException, Request

from wattloop.messages import LARGEST_REPORT_BYTES


async def json_body(request: Request) -> Any:
    """The body as JSON.

    Raises:
        HTTPException: 413 for more bytes than a report may have, 415 for another content type, 422 for no JSON.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "expected the content type application/json")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > LARGEST_REPORT_BYTES:
        raise _too_large()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_REPORT_BYTES:
            raise _too_large()
    try:
        return json.loads(bytes(body), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise HTTPException(422, f"expected JSON: {error}") from error


def _too_large() -> HTTPException:
    return HTTPException(413, f"a report has at most {LARGEST_REPORT_BYTES} bytes", {"Connection": "close"})


def _refuse_constant(name: str) -> None:
    raise ValueError(f"found {name}, expected a finite number")
