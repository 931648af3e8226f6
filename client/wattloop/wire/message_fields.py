"""Value types of message fields: each checks a JSON value and has a JSON schema."""

import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.printable import short_repr
from wattloop.wire.item_cache import cached_by_items

MAX_INTEGER = 2**63 - 1
# A string of a list and its place take about 80 bytes.
MAX_CACHED_TEXTS = 100_000


class MessageError(ValueError):
    """An invalid message; the text names the field, the value found and the value expected."""


class ValueType(ABC):
    """The type and the bounds of a value in a message."""

    @abstractmethod
    def parse(self, place: str, value: object) -> Any:
        """Check a JSON value and return it as Python's type.

        Args:
            place: Path of the value in the message, for the error's text.
            value: The value; None if the field is absent.

        Raises:
            MessageError: The value is not of this type or not within its bounds.
        """

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the value."""

    def are_valid(self, values: list[Any] | tuple[Any, ...]) -> bool:  # noqa: ARG002
        """Whether all values are known to be valid as they are; otherwise each is parsed. Faster for long lists."""
        return False


@dataclass(frozen=True)
class Number(ValueType):
    """A finite number."""

    minimum: float
    maximum: float

    def parse(self, place: str, value: object) -> float:
        """See `ValueType`."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_float(value)):
            raise invalid(place, value, "a finite number")
        if not self.minimum <= value <= self.maximum:
            raise invalid(place, value, f"a number from {self.minimum:g} to {self.maximum:g}")
        return float(value)

    def schema(self) -> dict[str, Any]:
        """See `ValueType`."""
        return {"type": "number", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True)
class Integer(ValueType):
    """An integer, from 0 unless otherwise stated."""

    maximum: int = MAX_INTEGER
    minimum: int = 0

    def parse(self, place: str, value: object) -> int:
        """See `ValueType`."""
        if isinstance(value, float) and value.is_integer():  # JSON has one type of number: 2.0 is 2
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            raise invalid(place, value, f"a whole number from {self.minimum} to {self.maximum}")
        return value

    def are_valid(self, values: list[Any] | tuple[Any, ...]) -> bool:
        """See `ValueType`."""
        return set(map(type, values)) == {int} and self.minimum <= min(values) and max(values) <= self.maximum

    def schema(self) -> dict[str, Any]:
        """See `ValueType`."""
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True)
class Boolean(ValueType):
    """True or false."""

    def parse(self, place: str, value: object) -> bool:
        """See `ValueType`."""
        if not isinstance(value, bool):
            raise invalid(place, value, "true or false")
        return value

    def schema(self) -> dict[str, Any]:
        """See `ValueType`."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class String(ValueType):
    """A string of printable ASCII, because no database stores a NUL and no file half a character."""

    max_length: int
    min_length: int = 1

    def parse(self, place: str, value: object) -> str:
        """See `ValueType`."""
        if (
            not isinstance(value, str)
            or not self.min_length <= len(value) <= self.max_length
            or not (value.isascii() and value.isprintable())
        ):
            raise invalid(place, value, f"a string of at most {self.max_length} characters of printable ASCII")
        return value

    def schema(self) -> dict[str, Any]:
        """See `ValueType`."""
        return {"type": "string", "minLength": self.min_length, "maxLength": self.max_length, "pattern": "^[ -~]*$"}


@dataclass(frozen=True)
class TruncatedString(ValueType):
    """Any string; longer ones are cut."""

    max_length: int

    def parse(self, place: str, value: object) -> str:
        """See `ValueType`."""
        if not isinstance(value, str):
            raise invalid(place, value, "a string")
        return value[: self.max_length]

    def schema(self) -> dict[str, Any]:
        """See `ValueType`."""
        return {"type": "string"}


@dataclass(frozen=True)
class Pattern(ValueType):
    """A string that a regular expression matches in full.

    Attributes:
        pattern: The regular expression.
        max_length: Length of the longest string that matches.
        expected: What is expected, for the error's text.
    """

    pattern: re.Pattern[str]
    max_length: int
    expected: str

    def parse(self, place: str, value: object) -> str:
        """See `ValueType`."""
        if not isinstance(value, str) or not self.pattern.fullmatch(value):
            raise invalid(place, value, self.expected)
        return value

    def are_valid(self, values: list[Any] | tuple[Any, ...]) -> bool:
        """See `ValueType`; ranks of a job send the same long lists."""
        return set(map(type, values)) == {str} and _all_match(tuple(values), self.pattern)

    def schema(self) -> dict[str, Any]:
        """See `ValueType`."""
        pattern = f"^({self.pattern.pattern})$"
        return {"type": "string", "minLength": 1, "maxLength": self.max_length, "pattern": pattern}


@cached_by_items(MAX_CACHED_TEXTS)
def _all_match(texts: tuple[str, ...], pattern: re.Pattern[str]) -> bool:
    return all(map(pattern.fullmatch, texts))


@dataclass(frozen=True)
class OneOf(ValueType):
    """One of a few strings."""

    values: tuple[str, ...]

    def parse(self, place: str, value: object) -> str:
        """See `ValueType`."""
        if not isinstance(value, str) or value not in self.values:
            raise invalid(place, value, f"one of {', '.join(self.values)}")
        return value

    def schema(self) -> dict[str, Any]:
        """See `ValueType`."""
        return {"type": "string", "enum": list(self.values)}


@dataclass(frozen=True)
class NumberRange(ValueType):
    """A pair of numbers from 0, the lower end first."""

    maximum: float

    def parse(self, place: str, value: object) -> tuple[float, float]:
        """See `ValueType`."""
        ends = entries(place, value, 2)
        if len(ends) != 2:
            raise MessageError(f"{place}: found {len(ends)} entries, expected the lowest and the highest")
        lowest = Number(0.0, self.maximum).parse(f"{place}.lowest", ends[0])
        return lowest, Number(lowest, self.maximum).parse(f"{place}.highest", ends[1])

    def schema(self) -> dict[str, Any]:
        """See `ValueType`."""
        return {"type": "array", "minItems": 2, "maxItems": 2, "items": Number(0.0, self.maximum).schema()}


def entries(place: str, value: object, max_entries: int) -> list[Any] | tuple[Any, ...]:
    """The entries of a list.

    Raises:
        MessageError: The value is no list, or has more than `max_entries` entries.
    """
    if not isinstance(value, list | tuple) or len(value) > max_entries:
        found = f"{len(value)} entries" if isinstance(value, list | tuple) else shown(value)
        raise MessageError(f"{place}: found {found}, expected a list of at most {max_entries} entries")
    return value


def invalid(place: str, value: object, expected: str) -> MessageError:
    """The error for an invalid value."""
    return MessageError(f"{place}: found {shown(value)}, expected {expected}")


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return math.inf


def json_problem(error: ValueError | RecursionError) -> str:
    """What is wrong with a text that Python's JSON parser rejects, in words that help the sender.

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
    """The value for an error message: at most a line long, and cheap to format."""
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple | Mapping):
        return "a list" if isinstance(value, list | tuple) else "an object"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    return short_repr(value)
