"""Rows of numbers on stdout: CSV or JSON, neither of which has NaN."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from wattloop.files.csv_table import write_csv_table


def finite(value: object) -> object:
    """The value with None in place of NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if _is_nan(value) else value


def write_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as CSV on stdout; NaN is an empty cell."""
    cells = ({name: "" if _is_nan(value) else value for name, value in row.items()} for row in rows)
    write_csv_table(sys.stdout, tuple(rows[0]), cells)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
