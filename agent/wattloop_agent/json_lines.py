"""Encodes and decodes the messages of both of the agent's sockets: one JSON object per line."""

import json
import sys
from collections.abc import Mapping

from wattloop.gpus.agent import REQUEST_LIMIT_BYTES
from wattloop.printable import short_repr
from wattloop.wire.message_fields import json_problem
from wattloop_agent.refusals import Reason, RequestError

__all__ = [
    "REQUEST_LIMIT_BYTES",
    "boolean",
    "decoded_request",
    "encoded",
    "gpus_in_request",
    "number",
    "request_too_long",
    "string",
]

GPUS_LIMIT = 256
TEXT_LIMIT = 256


def encoded(message: Mapping[str, object]) -> bytes:
    """A message as a line."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decoded_request(line: bytes) -> dict[str, object]:
    """Decode a request; `Reason.BAD_REQUEST`: it is no JSON object, has no verb, or is too long."""
    if len(line) > REQUEST_LIMIT_BYTES:
        raise request_too_long()
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(
            Reason.BAD_REQUEST, f"the request is not one JSON object on one line: {json_problem(error)}"
        ) from error
    if not isinstance(request, dict) or not isinstance(request.get("verb"), str):
        raise RequestError(Reason.BAD_REQUEST, 'the request is not a JSON object with a "verb"')
    return request


def request_too_long() -> RequestError:
    """The error for a request beyond the size limit."""
    return RequestError(Reason.BAD_REQUEST, f"the request is too long: at most {REQUEST_LIMIT_BYTES} bytes are allowed")


def gpus_in_request(request: Mapping[str, object]) -> tuple[str, ...]:
    """The request's ``gpus``: at least one uuid, none of them twice. Others are a `Reason.BAD_REQUEST`, as below."""
    names = request.get("gpus")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise RequestError(Reason.BAD_REQUEST, f'found "gpus" {short_repr(names)}, expected a list of GPU uuids')
    if len(names) > GPUS_LIMIT or any(len(name) > TEXT_LIMIT for name in names):
        raise RequestError(Reason.BAD_REQUEST, f'"gpus" may have at most {GPUS_LIMIT} uuids of {TEXT_LIMIT} characters')
    if len(set(names)) < len(names):
        raise RequestError(Reason.BAD_REQUEST, '"gpus" contains a GPU twice')
    return tuple(names)


def number(request: Mapping[str, object], name: str) -> float:
    """A finite number of the request."""
    value = request.get(name)
    # Compared before the conversion, since JSON has integers beyond the range of a float.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise RequestError(Reason.BAD_REQUEST, f'found "{name}" {short_repr(value)}, expected a finite number')
    return float(value)


def boolean(request: Mapping[str, object], name: str) -> bool:
    """An optional boolean of the request; absent, it is false."""
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise RequestError(Reason.BAD_REQUEST, f'found "{name}" {short_repr(value)}, expected true or false')
    return value


def string(request: Mapping[str, object], name: str) -> str:
    """A string of the request."""
    value = request.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_LIMIT:
        raise RequestError(
            Reason.BAD_REQUEST, f'found "{name}" {short_repr(value)}, expected a string of 1 to {TEXT_LIMIT} characters'
        )
    return value
