"""Escapes untrusted text, such as a driver's or a caller's, so that it cannot control a terminal or forge log lines."""

import re

# Enough for the cause at the beginning of a message; one that names 256 GPUs is longer.
MAX_TEXT_CHARACTERS = 2048
MAX_VALUE_CHARACTERS = 80
# Control characters except line ends and tabs, separators of lines, bidirectional controls and lone surrogates.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def ascii_text(text: str, limit: int) -> str:
    """The text in the characters and length that a message of a training process allows.

    Example:
        >>> ascii_text("η is 0.5", limit=5)
        '? is '
    """
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)[:limit]


def printable(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    r"""The text with each unprintable character escaped; beyond the limit an ellipsis, but no escape is cut.

    Unprintable are control characters (line ends and the escape character of terminal sequences among
    them), line and paragraph separators, bidirectional controls, and lone surrogates.

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


def without_controls(text: str) -> str:
    r"""The text with each character escaped that controls a terminal; line ends and tabs stay, and other languages.

    Example:
        >>> print(without_controls("2×" + chr(27) + "[2J" + chr(0x202E)))
        2×\x1b[2J\u202e
    """
    return _CONTROLS.sub(lambda match: _escaped(match[0]), text)


def quoted(text: str) -> str:
    r"""A text as its user wrote it, in quotes: `repr` would double each backslash of a regular expression.

    Example:
        >>> print(quoted(r"acc (?P<metric>\S+)"))
        'acc (?P<metric>\S+)'
    """
    return f"'{printable(text)}'"


def short_repr(value: object) -> str:
    """The value as Python writes it, for an error message, truncated.

    Example:
        >>> short_repr("abc"), len(short_repr("a" * 1000))
        ("'abc'", 81)
    """
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
