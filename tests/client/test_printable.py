"""Untrusted text cannot control a terminal or forge log lines."""

import codecs
import io
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.printable import MAX_TEXT_CHARACTERS, printable
from wattloop.printable_formatter import PrintableFormatter

HOSTILE = {
    "line feed": "GPU\n12:00:00 ERROR forged",
    "carriage return": "GPU\roverwritten",
    "clear the screen": "\x1b[2J",
    "a title": "\x1b]0;owned\x07",
    "8-bit control sequence": "\x9b2J",
    "line separator": "a\u2028b",
    "paragraph separator": "a\u2029b",
    "right-to-left override": "\u202egpj.exe",
    "isolate": "\u2066a\u2069",
    "zero width": "a\u200bb",
    "lone surrogate": "\ud800",
    "null": "\x00",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_characters_that_control_a_terminal_are_escaped(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown != text
    assert codecs.decode(shown, "unicode_escape") == text, "the escape is reversible"


@given(st.text(st.characters(codec=None), max_size=400), st.integers(1, 300))
def test_any_text_becomes_one_printable_line_of_bounded_length(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= 10 * limit + 1
    assert shown.encode("utf-8").isascii() or not text.isascii() or len(text) > limit


@given(st.text(st.characters(categories=("L", "N", "P", "S")), max_size=200))
def test_printable_text_is_unchanged(text: str) -> None:
    assert printable(text) == text


def logged(message: str, *arguments: object, error: Exception | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrintableFormatter("%(levelname)s %(message)s"))
    record = logging.LogRecord("x", logging.ERROR, "f.py", 1, message, arguments, None)
    if error is not None:
        record.exc_info = (type(error), error, error.__traceback__)
    handler.emit(record)
    return stream.getvalue()


@given(st.text(st.characters(codec=None, exclude_categories=("Cs",)), max_size=100))
def test_a_record_is_one_line(text: str) -> None:
    assert logged("pod %s", text) == f"ERROR pod {printable(text)}\n"


def test_a_long_message_is_truncated() -> None:
    assert len(logged("x" * 10 * MAX_TEXT_CHARACTERS)) < MAX_TEXT_CHARACTERS + 20


def test_no_line_of_a_traceback_looks_like_another_record() -> None:
    first, *rest = logged("failed", error=ValueError("bad\nERROR forged\x1b[2J")).splitlines()
    assert first == "ERROR failed"
    assert len(rest) > 1
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
