"""Lines of lists, as the page and its JSON show them, and as commands write them to files."""

import functools
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import IO, Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from wattloop.files.csv_table import write_csv_table
from wattloop_planner.estimate import Estimate


@dataclass(frozen=True)
class Interval(Estimate):
    """An estimated value with its interval of 90 %."""

    value: Annotated[float, Field(description="The expected value.")]
    low: Annotated[float, Field(description="Lower end of the interval.")]
    high: Annotated[float, Field(description="Upper end of the interval.")]

    @classmethod
    def of(cls, estimate: Estimate | None) -> Self | None:
        """The form of an estimate; None of None."""
        return None if estimate is None else cls(estimate.value, estimate.low, estimate.high)


class Line(BaseModel):
    """A line of a list.

    Attributes:
        column_names: Columns of files that have another name than their fields.
    """

    model_config = ConfigDict(frozen=True)
    column_names: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The columns of a file: one for each field, three for an interval."""
        return tuple(column for _, columns in _columns_of(cls) for column in columns)

    def cells(self) -> dict[str, Any]:
        """The line by its columns, with times in ISO 8601."""
        cells: dict[str, Any] = {}
        for name, columns in _columns_of(type(self)):
            value = getattr(self, name)
            if len(columns) > 1:
                ends = (None,) * 3 if value is None else (value.value, value.low, value.high)
                cells.update(zip(columns, ends, strict=True))
            else:
                cells[columns[0]] = value.isoformat() if isinstance(value, datetime) else value
        return cells


@functools.cache
def _columns_of(kind: type[Line]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each field with its columns; a line of a history has forty, and a history thousands of lines."""
    found = []
    for name, each in kind.model_fields.items():
        column = kind.column_names.get(name, name)
        ends = ("", "low_", "high_") if each.annotation == Interval | None else ("",)
        found.append((name, tuple(f"{end}{column}" for end in ends)))
    return tuple(found)


def write_lines(stream: IO[str], kind: type[Line], lines: Iterable[Line], format_name: str) -> None:
    """Write lines of a kind as csv or json."""
    rows = [each.cells() for each in lines]
    if format_name == "csv":
        write_csv_table(stream, kind.columns(), rows)
    else:
        json.dump(rows, stream, indent=2)
        stream.write("\n")
