"""Errors for users: each names the place, the value found and the value expected."""

from __future__ import annotations

from dataclasses import dataclass


class WattloopError(Exception):
    """Base of the errors that Wattloop raises for its user. The text is complete without a traceback."""


class OperationError(WattloopError):
    """The input is valid, but the operation failed (server unreachable, disk full). A command exits with code 1."""


class UsageError(WattloopError):
    """The arguments of a command are invalid. A command exits with code 2."""


@dataclass(eq=False)
class InputError(WattloopError):
    """The content of an input is invalid. A command exits with code 2.

    Attributes:
        source: The file, or the object as namespace/name.
        found: The value found.
        expected: The value expected.
        line: 1-based line in the file, if known.
        column: 1-based column, or the name of a table's column, if known.

    Example:
        >>> print(InputError("trace.csv", found="'x'", expected="a number", line=3, column="power_limit"))
        trace.csv: line 3, column power_limit: found 'x', expected a number
    """

    source: str
    found: str
    expected: str
    line: int | None = None
    column: int | str | None = None

    def __str__(self) -> str:
        """Source, place, value found and value expected, on one line."""
        place = ", ".join(
            f"{kind} {value}" for kind, value in (("line", self.line), ("column", self.column)) if value is not None
        )
        return f"{self.source}: {place + ': ' if place else ''}found {self.found}, expected {self.expected}"
