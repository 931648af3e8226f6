"""Text of others, such as a driver's or a caller's, for a terminal or a log file: no character of it acts on either."""

from __future__ import annotations

import logging

# A refusal that names 256 GPUs is longer; its beginning says what is wrong.
MAX_TEXT_CHARACTERS = 2048
_INDENTATION = "    "


def printable(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    r"""The text with an escape in place of every character that is not printable, and with at most so many characters.

    Not printable are control characters (among them line ends and the escape of terminals' sequences), separators of
    lines and paragraphs, characters that turn the direction of writing, and lone surrogates.

    Args:
        text: What somebody else has written.
        limit: How many characters are kept; an ellipsis stands for the rest. An escape is never cut.

    Example:
        >>> printable("NVIDIA H200")
        'NVIDIA H200'
        >>> print(printable(chr(27) + "[2J" + chr(10) + chr(0x202E) + "evil"))
        \x1b[2J\n\u202eevil
        >>> printable("0123456789", limit=4)
        '0123…'
    """
    kept = text[:limit]
    if not kept.isprintable():
        kept = "".join(each if each.isprintable() else _escaped(each) for each in kept)
    return kept if len(text) <= limit else f"{kept}…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class PrintableFormatter(logging.Formatter):
    """Formats one line a record; a traceback follows indented, so that no line of it looks like another record."""

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
