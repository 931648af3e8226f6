"""Parses the lists of a plan file: Python's literals for lists, tuples, dicts, numbers and texts, and nothing else.

Python's own parser takes 500 bytes of memory for each number, and raises errors of several kinds. This one takes
what the values take, and their number is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from wattloop.errors import InputError

# A plan of 600,000 operations with names.
MAX_VALUES = 2_000_000
MAX_DEPTH = 8
# A clock has at most seven.
MAX_NUMBER_CHARACTERS = 40
MAX_TEXT_CHARACTERS = 1_000

# Most of a plan are clocks, which are read at once. No plan has so many in a line.
TOKEN = re.compile(
    r"""(?:[ \t\r\n\f]|\#[^\n]*)*+(?:
    (?P<clocks>(?:[0-9]{1,9}[ \n]*,[ \n]*){2,10000})
    |(?P<opening>[\[({])
    |(?P<closing>[\])}])
    |(?P<separator>[,:])
    |(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    |(?P<text>'[^'\\\n]*'|"[^"\\\n]*")
    |(?P<name>True|False|None)\b
    |(?P<end>\Z)
    |(?P<other>[^\n]{1,40}))""",
    re.VERBOSE,
)
NAMES = {"True": True, "False": False, "None": None}
CLOSING = {"[": "]", "(": ")", "{": "}"}
FORM = "lists of numbers, of pairs of a text and a number, or of these with a dict of texts"


class _Open:
    """A list, tuple or dict that is not closed yet.

    Attributes:
        sign: How it was opened.
        values: Its values; of a dict, keys and values in turn.
        after: The sign before the next value: that which opened it, a comma or a colon; empty after a value.
    """

    __slots__ = ("after", "sign", "values")

    def __init__(self, sign: str) -> None:
        self.sign = sign
        self.values: list[Any] = []
        self.after = sign


def parse_literal(text: str, source: str) -> object:
    """The value that a text has.

    Args:
        text: The text.
        source: Its origin, for errors.

    Raises:
        InputError: The text is no such value, has too many of them, or one that is too long.

    Example:
        >>> parse_literal("[[1410, ('forward', 900)],]  # two entries", "plan")
        [[1410, ('forward', 900)]]
    """
    return _Parser(text, source).value()


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._position = 0
        self._innermost = _Open("")
        # Those that it is in, from the outermost.
        self._outer: list[_Open] = []
        self._left = MAX_VALUES
        # Names of instructions and knobs occur in each entry.
        self._texts: dict[str, str] = {}

    def value(self) -> object:
        steps: dict[str, Callable[[str], None]] = {
            "clocks": self._clocks,
            "opening": self._begin,
            "closing": self._close,
            "separator": self._separate,
            "number": self._number,
            "text": self._string,
            "name": lambda token: self._add(NAMES[token]),
            "end": self._end,
            "other": self._refuse,
        }
        for found in TOKEN.finditer(self._text):
            kind = found.lastgroup or "other"
            self._position = found.start(kind)
            steps[kind](found[kind])
        value: object = self._innermost.values[0]
        return value

    def _number(self, token: str) -> None:
        if len(token) > MAX_NUMBER_CHARACTERS:
            raise self._error(f"a number of {len(token)} characters", f"at most {MAX_NUMBER_CHARACTERS}")
        self._add(float(token) if set(token) & set(".eE") else int(token))

    def _string(self, token: str) -> None:
        if len(token) > MAX_TEXT_CHARACTERS:
            raise self._error(f"a text of {len(token)} characters", f"at most {MAX_TEXT_CHARACTERS}")
        self._add(self._texts.setdefault(token, token[1:-1]))

    def _clocks(self, token: str) -> None:
        innermost = self._innermost
        if innermost.sign not in {"[", "("} or not innermost.after:
            raise self._error(repr(token[:40]), FORM)
        clocks = token.split(",")[:-1]
        self._count(len(clocks))
        innermost.values.extend(map(int, clocks))
        innermost.after = ","

    def _begin(self, sign: str) -> None:
        if len(self._outer) >= MAX_DEPTH:
            raise self._error("values nested too deeply", FORM)
        self._expect_value()
        self._outer.append(self._innermost)
        self._innermost = _Open(sign)

    def _separate(self, sign: str) -> None:
        innermost = self._innermost
        # A dict has a colon after each key, and a comma after each value.
        wanted = ":" if innermost.sign == "{" and len(innermost.values) % 2 else ","
        if innermost.after or not innermost.sign or sign != wanted:
            raise self._error(repr(sign), "a value" if innermost.after else repr(wanted))
        innermost.after = sign

    def _close(self, sign: str) -> None:
        innermost = self._innermost
        values, after = innermost.values, innermost.after
        is_half = innermost.sign == "{" and len(values) % 2
        if CLOSING.get(innermost.sign) != sign or after == ":" or is_half:
            raise self._error(repr(sign), repr(CLOSING.get(innermost.sign, "the end of the file")))
        if after == "," and not values:
            raise self._error(repr(sign), "a value")
        self._innermost = self._outer.pop()
        if sign == "]":
            self._add(values)
        elif sign == "}":
            self._add(self._dict(values))
        else:
            is_grouped = len(values) == 1 and after != ","
            self._add(values[0] if is_grouped else tuple(values))

    def _end(self, _: str) -> None:
        if self._outer:
            raise self._error("the end of the file", repr(CLOSING[self._innermost.sign]))
        if not self._innermost.values:
            raise self._error("nothing", FORM)

    def _refuse(self, token: str) -> None:
        raise self._error(repr(token), FORM)

    def _dict(self, values: list[Any]) -> dict[Any, Any]:
        if not all(isinstance(key, str) for key in values[::2]):
            raise self._error("a key that is no text", "texts as keys")
        return dict(zip(values[::2], values[1::2], strict=True))

    def _add(self, value: object) -> None:
        self._count(1)
        self._expect_value()
        innermost = self._innermost
        innermost.values.append(value)
        innermost.after = ""

    def _count(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise self._error(f"more than {MAX_VALUES} values", f"at most {MAX_VALUES}")

    def _expect_value(self) -> None:
        innermost = self._innermost
        if not innermost.after and (innermost.sign or innermost.values):
            raise self._error("a value after another one", "a comma between them")

    def _error(self, found: str, expected: str) -> InputError:
        line = self._text.count("\n", 0, self._position) + 1
        column = self._position - (self._text.rfind("\n", 0, self._position) + 1) + 1
        return InputError(self._source, found, expected, line, column)
