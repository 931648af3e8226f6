"""Validates the values of a record before they are written to the database."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from wattloop.errors import InputError

MAX_INTEGER = 2**63 - 1
MAX_SHOWN_CHARACTERS = 200
# Decimals of the API have at most 15 digits before the point; reports stay below.
LIMIT = 1e15


def is_storable(text: str) -> bool:
    """Whether every database stores a text unchanged: PostgreSQL stores no NUL, and none a lone surrogate."""
    surrogates = not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
    return "\0" not in text and not surrogates


@dataclass(frozen=True)
class ColumnCheck:
    """Checks the values of one record.

    Every check raises `wattloop.errors.InputError` with the record, the column, the value found and
    the value expected.

    Attributes:
        source: The record, for error messages.

    Example:
        >>> from types import SimpleNamespace
        >>> ColumnCheck("a measurement").numbers(SimpleNamespace(joules=-1.0), "joules")
        Traceback (most recent call last):
        wattloop.errors.InputError: a measurement: column joules: found -1.0, expected a finite number of at least 0
    """

    source: str

    def error(self, column: str, found: object, expected: str) -> InputError:
        """The error for an invalid value."""
        shown = repr(found)
        if len(shown) > MAX_SHOWN_CHARACTERS:
            shown = f"{shown[:MAX_SHOWN_CHARACTERS]}…"
        return InputError(self.source, shown, expected, column=column)

    def strings(self, record: object, *columns: str, may_be_empty: bool = False) -> None:
        """Check that these are strings that every database stores unchanged."""
        for column in columns:
            value = getattr(record, column)
            if not is_storable(value):
                raise self.error(column, value, "text without NUL or lone surrogates")
            if not value and not may_be_empty:
                raise self.error(column, value, "text that is not empty")

    def integers(self, record: object, *columns: str, minimum: int) -> None:
        """Check that these are integers that fit into a 64-bit column."""
        for column in columns:
            value = getattr(record, column)
            if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_INTEGER:
                raise self.error(column, value, f"an integer of at least {minimum} in 64 bits")

    def numbers(self, record: object, *columns: str, optional: bool = False, positive: bool = False) -> None:
        """Check that these are finite and not negative."""
        for column in columns:
            value = getattr(record, column)
            if optional and value is None:
                continue
            # The comparison is false for NaN too.
            if not 0 <= value < LIMIT or (positive and value == 0):
                what = "above 0" if positive else "of at least 0"
                raise self.error(column, value, f"a finite number {what}{'' if value < LIMIT else ' and below 1e15'}")

    def signed_number(self, column: str, value: float) -> None:
        """Check that this is finite, and that a status can state it."""
        if not abs(value) < LIMIT:
            raise self.error(column, value, f"a finite number{'' if math.isnan(value) else ' between -1e15 and 1e15'}")

    def timestamp(self, record: object, column: str) -> datetime:
        """Check that this is a time with a time zone, and return it in UTC."""
        value = getattr(record, column)
        if value.tzinfo is None:
            raise self.error(column, value.isoformat(), "a time with its time zone")
        timestamp: datetime = value.astimezone(UTC)
        return timestamp
