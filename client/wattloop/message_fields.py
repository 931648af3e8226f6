"""Reading the fields of a message: each checked for its type and bounds, each mistake named with its place."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

SHOWN_CHARACTERS = 80


class MessageError(ValueError):
    """A message that cannot be accepted; the text names the field, what was found and what would be right."""


@dataclass(frozen=True)
class Fields:
    """The fields of one object; every method raises `MessageError` where a field is not what it shall be.

    Attributes:
        place: Where the object stands in the message; empty: it is the message.
        values: The object.
    """

    place: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, body: object, place: str, form: type | None) -> Fields:
        """Read an object; where a form is given, it may have no other fields than the form's."""
        if not isinstance(body, Mapping):
            raise MessageError(f"{place or 'the message'}: found {shown(body)}, expected an object")
        if form is not None:
            known = [field.name for field in fields(form)]
            unknown = next((key for key in body if key not in known), None)
            if unknown is not None:
                where = f"{place}: " if place else ""
                raise MessageError(f"{where}found the unknown field {shown(unknown)}, expected only {', '.join(known)}")
        return cls(place, body)

    def number(self, name: str, *, minimum: float, maximum: float, default: float | None = None) -> float:
        """A finite number within bounds."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_float(value)):
            raise self._error(name, value, "a finite number")
        if not minimum <= value <= maximum:
            raise self._error(name, value, f"a number from {minimum:g} to {maximum:g}")
        return float(value)

    def optional(self, name: str, *, minimum: float, maximum: float) -> float | None:
        """A finite number within bounds, or None where there is none."""
        return None if self.values.get(name) is None else self.number(name, minimum=minimum, maximum=maximum)

    def integer(self, name: str, *, maximum: int = 2**63 - 1, default: int | None = None) -> int:
        """A whole number from 0 up."""
        value = self.values.get(name, default)
        if isinstance(value, float) and value.is_integer():  # JSON knows one kind of number: 2.0 is 2
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
            raise self._error(name, value, f"a whole number from 0 to {maximum}")
        return value

    def text(self, name: str, max_characters: int, *, default: str | None = None) -> str:
        """A text of printable ASCII; empty only where a default says what that means."""
        value = self.values.get(name, default)
        # What cannot be printed cannot be kept either: no database takes a NUL, no file half a character.
        sound = isinstance(value, str) and len(value) <= max_characters and value.isascii() and value.isprintable()
        if not sound or (default is None and not value):
            raise self._error(name, value, f"a text of at most {max_characters} characters of printable ASCII")
        return str(value)

    def matching(self, name: str, pattern: re.Pattern[str], expected: str) -> str:
        """A text of which the whole matches a pattern."""
        value = self.values.get(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self._error(name, value, expected)
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise self._error(name, value, "true or false")
        return value

    def entries(self, name: str, maximum: int) -> list[Any] | tuple[Any, ...]:
        """A list; none where it is absent."""
        value = self.values.get(name, [])
        if not isinstance(value, list | tuple) or len(value) > maximum:
            found = f"{len(value)} entries" if isinstance(value, list | tuple) else shown(value)
            raise MessageError(f"{self._where(name)}: found {found}, expected a list of at most {maximum} entries")
        return value

    def _error(self, name: str, value: object, expected: str) -> MessageError:
        return MessageError(f"{self._where(name)}: found {shown(value)}, expected {expected}")

    def _where(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf


def json_problem(error: ValueError | RecursionError) -> str:
    """What is wrong with a text of which a parser of JSON says this: its own words where they tell the sender anything.

    Example:
        >>> json_problem(ValueError("Exceeds the limit (4300 digits) for integer string conversion"))
        'a whole number of more than 4300 digits'
    """
    if isinstance(error, RecursionError):
        return "lists or objects nested too deeply"
    if "integer string conversion" in str(error):
        return f"a whole number of more than {sys.get_int_max_str_digits()} digits"
    return str(error)


def shown(value: object) -> str:
    """The value as it stands in an error message: not longer than a line, and nothing that is costly to print."""
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple | Mapping):
        return "a list" if isinstance(value, list | tuple) else "an object"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
