"""Reading a request's body without ever holding more of it than allowed."""

from __future__ import annotations

import json
from typing import Any

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from wattloop.message_fields import json_problem


async def json_body(request: Request, most_bytes: int) -> Any:
    """The body as JSON.

    Args:
        request: The request.
        most_bytes: How many bytes the body may have.

    Raises:
        HTTPException: 413 for more bytes than a report may have, 415 for another content type, 422 for no JSON, 400 for
            a body whose end never came.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "expected the content type application/json")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > most_bytes:
        raise _too_large(most_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most_bytes:
                raise _too_large(most_bytes)
    except ClientDisconnect as error:
        # Nobody hears it; raised on, every client that goes away in the midst would leave a traceback in the log.
        raise HTTPException(400, "the connection ended before the body did") from error
    try:
        return json.loads(bytes(body), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise HTTPException(422, f"expected JSON: {json_problem(error)}") from error


def _too_large(most_bytes: int) -> HTTPException:
    return HTTPException(413, f"a report has at most {most_bytes} bytes", {"Connection": "close"})


def _refuse_constant(name: str) -> None:
    raise ValueError(f"found {name}, expected a finite number")
