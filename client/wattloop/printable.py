"""Escapes untrusted text, such as a driver's or a caller's, so that it cannot control a terminal or forge log lines."""

from __future__ import annotations

import logging

# Enough for the cause at the beginning of a message; one that names 256 GPUs is longer.
MAX_TEXT_CHARACTERS = 2048
_INDENTATION = "    "


def ascii_text(text: str, limit: int) -> str:
    """The text in the characters and length that a message of a training process allows.

    Example:
        >>> ascii_text("η is 0.5", limit=5)
        '? is '
    """
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)[:limit]


def printable(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    r"""The text with each unprintable character escaped, truncated to a limit.

    Unprintable are control characters (line ends and the escape character of terminal sequences among
    them), line and paragraph separators, bidirectional controls, and lone surrogates.

    Args:
        text: The untrusted text.
        limit: Maximum number of characters of the text; an ellipsis replaces the rest. An escape is
            never cut.

    Example:
        >>> printable("NVIDIA H200")
        'NVIDIA H200'
        >>> print(printable(chr(27) + "[2J" + chr(10) + chr(0x202E) + "evil"))
        \x1b[2J\n\u202eevil
        >>> printable("0123456789", limit=4)
        '0123…'
    """
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else _escaped(each) for each in shown)
    return shown if len(text) <= limit else f"{shown}…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


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
