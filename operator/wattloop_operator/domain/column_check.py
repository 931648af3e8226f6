"""What every record of the store holds its values to before they are written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from wattloop.errors import InputError

MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class ColumnCheck:
    """Checks of the values of one record.

    Every check raises `wattloop.errors.InputError`, which names the record, the column, what was found and what would
    be right.

    Attributes:
        source: The record, in errors.

    Example:
        >>> from types import SimpleNamespace
        >>> ColumnCheck("a measurement").amounts(SimpleNamespace(joules=-1.0), "joules")
        Traceback (most recent call last):
        wattloop.errors.InputError: a measurement: column joules: found -1.0, expected a finite number of at least 0
    """

    source: str

    def error(self, column: str, found: object, expected: str) -> InputError:
        """The error for a value that cannot be."""
        return InputError(self.source, repr(found), expected, column=column)

    def texts(self, record: object, *columns: str, may_be_empty: bool = False) -> None:
        """These are texts that every database keeps as they are."""
        for column in columns:
            value = getattr(record, column)
            # PostgreSQL keeps no NUL, and no database keeps half a surrogate pair.
            if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
                raise self.error(column, value, "text without NUL or lone surrogates")
            if not value and not may_be_empty:
                raise self.error(column, value, "a text that is not empty")

    def integers(self, record: object, *columns: str, least: int) -> None:
        """These are whole numbers that fit into a column."""
        for column in columns:
            value = getattr(record, column)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INTEGER:
                raise self.error(column, value, f"a whole number of at least {least} in 64 bits")

    def amounts(self, record: object, *columns: str, optional: bool = False, positive: bool = False) -> None:
        """These are finite and not negative."""
        for column in columns:
            value = getattr(record, column)
            if optional and value is None:
                continue
            if not math.isfinite(value) or value < 0 or (positive and value == 0):
                raise self.error(column, value, f"a finite number {'above 0' if positive else 'of at least 0'}")

    def moment(self, record: object, column: str) -> datetime:
        """This is a time with its zone; returns it in UTC."""
        value = getattr(record, column)
        if value.tzinfo is None:
            raise self.error(column, value.isoformat(), "a time with its time zone")
        moment: datetime = value.astimezone(UTC)
        return moment
