"""Writes lists whose lines are dataclasses, as CSV or as JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import IO, Any, Protocol


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
        writer = csv.DictWriter(stream, [each.name for each in fields(kind)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(each.to_json() for each in lines)
    else:
        json.dump([each.to_json() for each in lines], stream, indent=2)
        stream.write("\n")
