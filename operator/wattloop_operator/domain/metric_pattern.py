r"""Patterns that would read the metric from a line that names it, to propose: which number is meant a user knows.

A line such as ``accuracy: 9825/10000 (98%)`` has two numbers after the name. A pattern is proposed for each of them,
with the values that it reads, and none is used by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import re2

from wattloop_operator.api.reporting_source import MAX_PATTERN_CHARACTERS
from wattloop_operator.domain.named_metric import NUMBER
from wattloop_operator.domain.printed_epoch import EPOCH, printed_epoch

# Numbers after the name that may be meant. A further one is rarely of this metric.
MAX_NUMBERS = 3
_NUMBER = re.compile(rf"(?:(?<![\w.])|(?<=[\w.][-+])){NUMBER}")
_EPOCH = r"(?i:epoch)[\s=:#\[]*(?P<epoch>\d+)"
_VALUE = r"[-+.\deE]+|nan|inf"
# The word before the name is of the pattern too: "val acc" is not "train acc".
_WORD_BEFORE = re.compile(r"[A-Za-z_]+[^\w\[\](){}]{1,3}$")
_WHOLE_NAME = r"(?:^|[^\w./-])"
MAX_COLUMNS = 50
_AROUND_NAME = " ():"
_PARTS = re.compile(rf"({NUMBER})|(\s+)|([^\s0-9+.-]+|.)")


@dataclass(frozen=True)
class _Columns:
    """How a table's columns are separated.

    Attributes:
        gap: A pattern of what stands between two cells.
        cell: A pattern of a cell.
        around: A pattern of what stands before the first cell and after the last one.
    """

    gap: str
    cell: str
    around: str

    def split(self, line: str) -> list[str]:
        """The cells of a line."""
        return re.split(self.gap, re.sub(rf"^{self.around}|{self.around}$", "", line))


_WORDS = _Columns(r"\s+", r"\S+", r"\s*")
_COLUMNS = (
    _Columns(r"\s*[|│┃]\s*", r"[^|│┃]*?", r"\s*[|│┃]?\s*"),
    _Columns(r"\s*[,;]\s*", r"[^,;]*?", r"\s*"),
    _WORDS,
    # The names of spaCy's columns have spaces: "LOSS NER  ENTS_F".
    _Columns(r"\s{2,}", r"\S+(?:\s\S+)*", r"\s*"),
)


def patterns_for(line: str, name: str, *, has_epochs: bool) -> list[str]:
    r"""Patterns that read a number after the metric's name, the nearest number first.

    Args:
        line: A line that names the metric.
        name: The name, in any case.
        has_epochs: Whether other lines of the output have epochs.

    Example:
        >>> patterns_for("accuracy: 81/100 (81%)", "accuracy", has_epochs=False)[0]
        '(?:^|[^\\w./-])accuracy:\\s*(?P<metric>[-+.\\deE]+|nan|inf)'
        >>> len(patterns_for("accuracy: 81/100 (81%)", "accuracy", has_epochs=False))
        3
    """
    start = line.lower().find(name.lower())
    if start < 0:
        return []
    end = start + len(name)
    epoch = ""
    if printed_epoch(line, has_metric=True) is not None and re2.search(_EPOCH, line[:start]) is not None:
        epoch = f"{_EPOCH}.*"
    elif has_epochs:
        epoch = f"{_EPOCH}|"
    before = _WORD_BEFORE.search(line[:start])
    named = _general("" if before is None else before.group()) + re.escape(line[start:end])
    found = []
    for number in list(_NUMBER.finditer(line, end))[:MAX_NUMBERS]:
        between = _general(line[end : number.start()])
        found.append(f"{epoch}{_WHOLE_NAME}{named}{between}(?P<metric>{_VALUE})")
    return [each for each in found if len(each) <= MAX_PATTERN_CHARACTERS]


def pattern_for_table(head: str, row: str, name: str) -> str | None:
    r"""The pattern that reads the metric's column of a table, and that of the epoch; None if the row does not fit.

    Args:
        head: The head, with the name of each column.
        row: A row. A word at its beginning, such as ``all``, is of the pattern too.
        name: The metric's name.

    Example:
        >>> pattern = pattern_for_table("epoch | train loss | accuracy", "3 | 0.21 | 0.91", "accuracy")
        >>> found = re2.search(pattern, "4 | 0.20 | 0.92")
        >>> found["epoch"], found["metric"]
        ('4', '0.92')
        >>> pattern = pattern_for_table("Class  Images  Box(P  mAP50  mAP50-95):", "all  128  0.7  0.6  0.4", "mAP50")
        >>> [re2.search(pattern, row) is not None for row in (" all 128 0.7 0.6 0.4", "1/3  2G  0.6  0.5  0.4")]
        [True, False]
    """
    for columns in _COLUMNS:
        names, cells = [cell.strip(_AROUND_NAME) for cell in columns.split(head)], columns.split(row)
        is_row = len(names) == len(cells) <= MAX_COLUMNS and name in names
        if is_row and re.fullmatch(NUMBER, cells[names.index(name)]) is not None:
            columns_of_row = _WORDS if _WORDS.split(row) == cells else columns
            return _pattern_of_column(names, cells, names.index(name), columns_of_row)
    return None


def _pattern_of_column(names: list[str], cells: list[str], metric: int, columns: _Columns) -> str | None:
    lower = [each.lower() for each in names[:metric]]
    epoch = lower.index(EPOCH) if EPOCH in lower else None
    parts = [r"(?P<epoch>\d+)" if column == epoch else columns.cell for column in range(metric)]
    if parts and cells[0].isalpha():
        parts[0] = re.escape(cells[0])
    parts += [rf"(?P<metric>{_VALUE})", *[columns.cell] * (len(cells) - metric - 1)]
    pattern = rf"^{columns.around}{columns.gap.join(parts)}{columns.around}$"
    return pattern if len(pattern) <= MAX_PATTERN_CHARACTERS else None


def _general(text: str) -> str:
    """A pattern of a text whose numbers and spaces may differ."""
    return "".join(_parts(text))


def _parts(text: str) -> Iterable[str]:
    for number, space, other in _PARTS.findall(text):
        yield r"\S+?" if number else r"\s*" if space else re.escape(other)
