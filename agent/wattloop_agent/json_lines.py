"""One JSON object a line, in both directions: the form of both of the agent's sockets."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from wattloop.agent import REQUEST_LIMIT_BYTES
from wattloop.message_fields import json_problem
from wattloop_agent.request_error import Reason, RequestError

__all__ = ["REQUEST_LIMIT_BYTES", "decoded_request", "encoded", "gpu_names", "number", "text"]

GPUS_LIMIT = 256
TEXT_LIMIT = 256


def encoded(message: Mapping[str, object]) -> bytes:
    """The line of a message."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decoded_request(line: bytes) -> dict[str, object]:
    """The request of a line.

    Raises:
        RequestError: `Reason.BAD_REQUEST`: no JSON object, no verb, too long.
    """
    if len(line) > REQUEST_LIMIT_BYTES:
        raise RequestError(Reason.BAD_REQUEST, f"a request has {REQUEST_LIMIT_BYTES} bytes at most")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(
            Reason.BAD_REQUEST, f"a request is one JSON object on one line: {json_problem(error)}"
        ) from error
    if not isinstance(request, dict) or not isinstance(request.get("verb"), str):
        raise RequestError(Reason.BAD_REQUEST, 'a request is a JSON object with a "verb"')
    return request


def gpu_names(request: Mapping[str, object]) -> tuple[str, ...]:
    """The request's ``gpus``: uuids, at least one, none twice.

    Raises:
        RequestError: `Reason.BAD_REQUEST`.
    """
    names = request.get("gpus")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise RequestError(Reason.BAD_REQUEST, f'"gpus" is {_short(names)}, not a list of GPU uuids')
    if len(names) > GPUS_LIMIT or any(len(name) > TEXT_LIMIT for name in names):
        raise RequestError(Reason.BAD_REQUEST, f'"gpus" has {GPUS_LIMIT} uuids of {TEXT_LIMIT} characters at most')
    if len(set(names)) < len(names):
        raise RequestError(Reason.BAD_REQUEST, '"gpus" names a GPU twice')
    return tuple(names)


def number(request: Mapping[str, object], name: str) -> float:
    """A finite number of the request.

    Raises:
        RequestError: `Reason.BAD_REQUEST`.
    """
    value = request.get(name)
    # Compared, not converted: JSON has whole numbers beyond all floats.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise RequestError(Reason.BAD_REQUEST, f'"{name}" is {_short(value)}, not a finite number')
    return float(value)


def text(request: Mapping[str, object], name: str) -> str:
    """A text of the request.

    Raises:
        RequestError: `Reason.BAD_REQUEST`.
    """
    value = request.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_LIMIT:
        raise RequestError(
            Reason.BAD_REQUEST, f'"{name}" is {_short(value)}, not a text of 1 to {TEXT_LIMIT} characters'
        )
    return value


def _short(value: object) -> str:
    told = repr(value)
    return told if len(told) <= 60 else told[:57] + "..."
