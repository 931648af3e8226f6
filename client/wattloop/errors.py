"""Errors for users: each names the place, the value found and the value expected."""

from dataclasses import dataclass

from wattloop.printable import printable

# What a file or another program has may be of any length, and have any characters.
MAX_FOUND_CHARACTERS, MAX_COLUMN_CHARACTERS = 1_000, 200


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
        """Source, place, value found and value expected, on one printable line."""
        column = None if self.column is None else _shown(str(self.column), MAX_COLUMN_CHARACTERS)
        place = ", ".join(
            f"{kind} {value}" for kind, value in (("line", self.line), ("column", column)) if value is not None
        )
        source, found = printable(self.source), _shown(self.found, MAX_FOUND_CHARACTERS)
        return f"{source}: {place + ': ' if place else ''}found {found}, expected {printable(self.expected)}"


def _shown(text: str, limit: int) -> str:
    """The text as a printable one of this length, escapes included."""
    return printable(printable(text, limit), limit)
