"""Writes lists whose lines are dataclasses, as CSV or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import IO, Any, Protocol

from wattloop.files.csv_table import write_csv_table


class Line(Protocol):
    """A dataclass that is a line of a list."""

    def to_json(self) -> dict[str, Any]:
        """The line as a JSON object with the names of its fields."""
        ...


def write_lines(stream: IO[str], kind: type[Any], lines: Iterable[Line], format_name: str) -> None:
    """Write the lines.

    Args:
        stream: Where to.
        kind: The dataclass of the lines; the columns are its fields.
        lines: The lines.
        format_name: csv or json.
    """
    if format_name == "csv":
        write_csv_table(stream, [each.name for each in fields(kind)], (each.to_json() for each in lines))
    else:
        json.dump([each.to_json() for each in lines], stream, indent=2)
        stream.write("\n")
