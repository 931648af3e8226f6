"""Formats log records with untrusted text: a record is one line, and its traceback looks like no other record."""

from __future__ import annotations

import logging

from wattloop.printable import printable

_INDENTATION = "    "


class PrintableFormatter(logging.Formatter):
    """Formats a record as one line, and indents its traceback so that no line of it looks like another record."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The record's line."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 - logging's name
        """The exception's traceback."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """The stack of the call."""
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(_INDENTATION + printable(line) for line in text.split("\n"))
