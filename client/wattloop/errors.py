"""What went wrong, said so that the reader can mend it: where, what was found, what would be right."""

from __future__ import annotations

from dataclasses import dataclass


class WattloopError(Exception):
    """Base of every error that Wattloop raises for its user: its text is complete, no traceback is needed."""


class OperationError(WattloopError):
    """The input was right, but it could not be done (a server away, a disk full). A command ends with exit code 1."""


class UsageError(WattloopError):
    """The command was used wrongly. A command ends with exit code 2."""


@dataclass(eq=False)
class InputError(WattloopError):
    """An input that cannot be accepted. A command ends with exit code 2.

    Attributes:
        source: The file (or the object, as namespace/name) that the input came from.
        found: What stands there.
        expected: What would be right.
        line: 1-based line in the file, where there is one.
        column: 1-based column, or the name of a table's column.

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
        """Source, place, what was found and what would be right, on one line."""
        place = ", ".join(
            f"{word} {value}" for word, value in (("line", self.line), ("column", self.column)) if value is not None
        )
        return f"{self.source}: {place + ': ' if place else ''}found {self.found}, expected {self.expected}"
