"""The form of undelivered reports in the termination message of a container: docs/internals/undelivered-reports.md."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from wattloop.wire.message_fields import MessageError
from wattloop.wire.training_messages import Report
from wattloop.wire.wire_form import WireForm

# The kubelet takes these from the end of the file, and keeps the first of them: of a pod 12 KiB, in equal parts for its
# containers.
MAX_MESSAGE_BYTES = 4096
PREFIX = "Reports for Wattloop that its operator has not received: "
TOO_MANY = "too many for this file"
# A container with 30 ranks has about 17,000.
MAX_JSON_BYTES = 256 * 1024


def packed(reports: Sequence[Report]) -> str:
    """Reports of several processes as text; without measured power limits if they do not fit, else `TOO_MANY`.

    A part of the reports would give a part of the energy, which looks like all of it.

    Example:
        >>> report = Report(process="p", sequence=7, epoch=3.0, metric=0.9, finished=True)
        >>> unpacked(packed([report])) == (report,)
        True
    """
    for kept in (reports, [replace(each, profile=()) for each in reports]):
        text = json.dumps([_without_defaults(each) for each in kept], separators=(",", ":"), allow_nan=False)
        found = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
        if len(PREFIX) + len(found) + 2 <= MAX_MESSAGE_BYTES and len(text) <= MAX_JSON_BYTES:
            return found
    return TOO_MANY


def unpacked(text: str) -> tuple[Report, ...]:
    """The reports in what `packed` returned.

    Raises:
        MessageError: The text is cut off, was written by something else, or stands for more reports than fit.
    """
    if text == TOO_MANY:
        raise MessageError(f"its processes had more to report than {MAX_MESSAGE_BYTES} bytes hold")
    try:
        decompressor = zlib.decompressobj()
        data = decompressor.decompress(base64.b85decode(text), MAX_JSON_BYTES)
        bodies = json.loads(data) if decompressor.eof else None
    except (ValueError, zlib.error, RecursionError) as error:
        raise MessageError(f"the text is cut off or invalid ({error})") from error
    if not isinstance(bodies, list):
        raise MessageError("the text is cut off or invalid")
    return tuple(Report.from_json(each) for each in bodies)


def split_message(message: str) -> tuple[str, str]:
    r"""A termination message without the line of undelivered reports, and what `packed` made of them; empty for none.

    Example:
        >>> split_message("ValueError: x\n" + PREFIX + "c-jH#\n")
        ('ValueError: x\n', 'c-jH#')
        >>> split_message("epoch=3 accuracy=0.9\n")
        ('epoch=3 accuracy=0.9\n', '')
    """
    output, prefix, rest = message.rpartition(PREFIX)
    if not prefix or (output and not output.endswith("\n")):
        return message, ""
    line, _, after = rest.partition("\n")
    return output + after, line


def joined_message(output: str, packed_reports: str) -> str:
    """A termination message of a text and what `packed` returned, if that is not empty.

    The line of reports is where the kubelet cuts last: first, unless the message is too long for the kubelet.
    """
    if not packed_reports:
        return output
    line = f"{PREFIX}{packed_reports}\n"
    if len(line) + len(output.encode(errors="surrogateescape")) <= MAX_MESSAGE_BYTES:
        return line + output
    return output + ("" if output.endswith("\n") else "\n") + line


def _without_defaults(form: WireForm) -> Mapping[str, Any]:
    values = ((field.name, getattr(form, field.name)) for field in fields(form) if field.init)
    defaults = {field.name: field.default for field in fields(form)}
    return {name: _as_json(value) for name, value in values if value != defaults[name]}


def _as_json(value: object) -> object:
    if isinstance(value, WireForm):
        return _without_defaults(value)
    return [_as_json(each) for each in value] if isinstance(value, tuple) else value
