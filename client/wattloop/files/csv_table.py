"""Reads CSV tables by column name, with errors that name the line and the column, and writes them.

To a spreadsheet, a cell that begins with ``=`` is a formula, whoever chose the text. Such a text is written behind an
apostrophe, as a user of a spreadsheet would, and read without it.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from wattloop.errors import InputError
from wattloop.files.reading import read_text
from wattloop.printable import printable

MAX_FILE_BYTES = 64 * 1024 * 1024
# A row takes about 300 bytes of memory, and a cell 100.
MAX_ROWS = 250_000
MAX_COLUMNS = 1_000
MAX_CELLS = 2_500_000
# Also of a row whose quotation marks enclose line ends.
MAX_ROW_CHARACTERS = 256 * 1024
MAX_SHOWN_CHARACTERS = 80
MAX_SHOWN_HEADER = 200
# As in the store: sums and squares of what is below stay finite.
LIMIT = 1e15
# Of the last line, the end of the text takes the place of its line end.
FORMULA = re.compile(r"'*[=+\-@\t\n]")
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")


@dataclass(frozen=True)
class Row:
    """One row of a table: its cells by column name, and its place for error messages.

    Attributes:
        line: 1-based line of the file on which the row ends.
        cells: Text of each cell by column name, stripped.
    """

    source: str
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """The cell's text.

        Raises:
            InputError: The cell is empty.
        """
        value = self.cells.get(column, "")
        if not value:
            raise InputError(self.source, "an empty cell", "a value", self.line, column)
        return value

    def number(self, column: str, *, minimum: float = -math.inf, above: float | None = None) -> float:
        """The cell as a finite number below 1e15, of at least ``minimum`` and, if given, greater than ``above``.

        Raises:
            InputError: The cell is empty, is not a finite number, or is out of range.
        """
        text = self.text(column)
        expected = "a finite number"
        if above is not None:
            expected = f"a finite number above {above:g}"
        elif minimum > -math.inf:
            expected = f"a finite number of at least {minimum:g}"
        try:
            value = float(text)
        except ValueError:
            raise InputError(self.source, _shown(text), expected, self.line, column) from None
        if math.isfinite(value) and abs(value) >= LIMIT:
            raise InputError(self.source, _shown(text), f"{expected}, of less than 1e15", self.line, column)
        if not math.isfinite(value) or value < minimum or (above is not None and value <= above):
            raise InputError(self.source, _shown(text), expected, self.line, column)
        return value

    def integer(self, column: str, *, minimum: int | None = None) -> int:
        """The cell as an integer, ``12`` or ``12.0``, of at least ``minimum`` if given.

        Raises:
            InputError: The cell is empty, is not an integer, or is too small.
        """
        value = self.number(column)
        if value != int(value) or (minimum is not None and value < minimum):
            bound = "" if minimum is None else f" of at least {minimum}"
            raise InputError(self.source, _shown(self.cells[column]), f"a whole number{bound}", self.line, column)
        return int(value)

    def optional_number(self, column: str, *, minimum: float = -math.inf) -> float | None:
        """The cell as a number, or None if it is empty, NaN or its column is missing."""
        text = self.cells.get(column, "")
        return None if text == "" or text.lower() == "nan" else self.number(column, minimum=minimum)


def read_table(path: str | Path, columns: Sequence[str], one_of: Sequence[str] = ()) -> Iterator[Row]:
    """Read the rows of a CSV file that has at least these columns, in any order.

    Args:
        path: The file: UTF-8, comma-separated, with a header on line 1.
        columns: Names that the header must contain.
        one_of: Names of which the header must contain at least one.

    Yields:
        The rows in order, with all columns of the file. Empty lines are skipped.

    Raises:
        InputError: The file is missing, empty, too large or not UTF-8, the header lacks a column or has it
            twice, or a row has more or fewer cells than the header.
    """
    source = str(path)
    lines = _Lines(source, read_text(path, MAX_FILE_BYTES, "a CSV file", encoding="utf-8-sig"))
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    rows = 0
    try:
        header = [_read_cell(name) for name in next(reader, [])]
        _check_header(source, header, columns, one_of)
        max_rows = min(MAX_ROWS, MAX_CELLS // len(header))
        for cells in reader:
            lines.characters = 0
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                # The first column without a cell, or the number of the first cell without a column.
                column = header[len(cells)] if len(cells) < len(header) else len(header) + 1
                found, expected = f"{len(cells)} cells", f"{len(header)} as in the header"
                raise InputError(source, found, expected, reader.line_num, column)
            rows += 1
            if rows > max_rows:
                raise InputError(
                    source, f"more than {max_rows} rows of {len(header)} cells", f"at most {max_rows}", reader.line_num
                )
            yield Row(source, reader.line_num, dict(zip(header, map(_read_cell, cells), strict=True)))
    except csv.Error as error:
        raise InputError(source, f"text that is not CSV ({error})", "comma-separated cells", reader.line_num) from error


def write_csv_table(
    stream: IO[str], columns: Sequence[str], rows: Iterable[Sequence[object] | Mapping[str, object]]
) -> None:
    r"""Write a table as CSV: a header, and no text that is a formula to a spreadsheet.

    `read_table` gives the texts back.

    Args:
        stream: Where to.
        columns: The header.
        rows: The rows: cells in the order of the columns, or by their names; those that a row lacks are empty.

    Example:
        >>> import sys
        >>> write_csv_table(sys.stdout, ["job", "change"], [["=1+1", -3.5], {"job": "digits", "change": "-3.5"}])
        job,change
        '=1+1,-3.5
        digits,-3.5
    """
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_written_cell, columns))
    for row in rows:
        cells = [row.get(name) for name in columns] if isinstance(row, Mapping) else row
        writer.writerow(map(_written_cell, cells))


def _written_cell(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    # A line end to readers, which the csv module does not quote.
    text = cell.replace("\r", "\\r")
    return f"'{text}" if FORMULA.match(text) and not _is_number(text) else text


def _read_cell(cell: str) -> str:
    text = cell.strip()
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Lines:
    """The lines of a text, of which each row may have so many characters.

    Attributes:
        characters: Those of the lines since the last row, which the reader of rows sets back.
    """

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._lines = enumerate(LINE.finditer(text), start=1)
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        number, line = next(self._lines)
        self.characters += line.end() - line.start()
        if self.characters > MAX_ROW_CHARACTERS:
            found = f"a row of more than {MAX_ROW_CHARACTERS} characters"
            raise InputError(self._source, found, f"at most {MAX_ROW_CHARACTERS}", number)
        return line[0]


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…")


def _listed(header: list[str]) -> str:
    return f"columns: {printable(', '.join(header), MAX_SHOWN_HEADER)}"


def _check_header(source: str, header: list[str], columns: Sequence[str], one_of: Sequence[str]) -> None:
    if not any(header):
        raise InputError(source, "no header", f"line 1 with the columns {', '.join(columns)}", 1, 1)
    if len(header) > MAX_COLUMNS:
        raise InputError(source, f"{len(header)} columns", f"at most {MAX_COLUMNS}", 1)
    for column in columns:
        if header.count(column) != 1:
            found = "no such column" if column not in header else "the column twice"
            raise InputError(source, f"{found} ({_listed(header)})", f"one column {column}", 1, column)
    if one_of and not set(one_of) & set(header):
        found = f"no such column ({_listed(header)})"
        raise InputError(source, found, f"one of the columns {', '.join(one_of)}", 1, one_of[0])
