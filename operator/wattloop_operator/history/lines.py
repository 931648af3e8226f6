"""Lines of lists, as the page and its JSON show them, and as commands write them to files."""

import json
from collections.abc import Iterable, Iterator, Mapping
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
        return tuple(
            f"{end}{cls.column_names.get(name, name)}"
            for name, each in cls.model_fields.items()
            for end in (("", "low_", "high_") if each.annotation == Interval | None else ("",))
        )

    def cells(self) -> dict[str, Any]:
        """The line by its columns, with times in ISO 8601."""
        return dict(zip(self.columns(), self._values(), strict=True))

    def _values(self) -> Iterator[Any]:
        for name, each in type(self).model_fields.items():
            value = getattr(self, name)
            if each.annotation == Interval | None:
                yield from (None,) * 3 if value is None else (value.value, value.low, value.high)
            else:
                yield value.isoformat() if isinstance(value, datetime) else value


def write_lines(stream: IO[str], kind: type[Line], lines: Iterable[Line], format_name: str) -> None:
    """Write lines of a kind as csv or json."""
    rows = [each.cells() for each in lines]
    if format_name == "csv":
        write_csv_table(stream, kind.columns(), rows)
    else:
        json.dump(rows, stream, indent=2)
        stream.write("\n")
