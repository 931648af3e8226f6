r"""Patterns that would read the metric from a line that names it, to propose: which number is meant a user knows.

A line such as ``accuracy: 9825/10000 (98%)`` has two numbers after the name. A pattern is proposed for each of them,
with the values that it reads, and none is used by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import re2

from wattloop_operator.api.reporting_source import MAX_PATTERN_CHARACTERS
from wattloop_operator.domain.named_metric import NUMBER
from wattloop_operator.domain.printed_epoch import printed_epoch

# Numbers after the name that may be meant. A further one is rarely of this metric.
MAX_NUMBERS = 3
_NUMBER = re.compile(rf"(?:(?<![\w.])|(?<=[\w.][-+])){NUMBER}")
_EPOCH = r"(?i:epoch)[\s=:#\[]*(?P<epoch>\d+)"
_VALUE = r"[-+.\deE]+|nan|inf"
# The word before the name is of the pattern too: "val acc" is not "train acc".
_WORD_BEFORE = re.compile(r"[A-Za-z_]+[^\w\[\](){}]{1,3}$")
_WHOLE_NAME = r"(?:^|[^\w./-])"
_CELL = re.compile(r"[^\s|,;│┃]+")
_GAP = r"[\s|,;│┃]+"
_WORDS = re.compile(rf"({NUMBER})|(\s+)|([^\s0-9+.-]+|.)")


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


def pattern_for_table(header: str, name: str) -> str | None:
    r"""The pattern that reads the metric's column of a table, and the column of the epoch; None if there is none.

    Example:
        >>> pattern = pattern_for_table("epoch | loss | accuracy", "accuracy")
        >>> found = re2.search(pattern, "3 | 0.21 | 0.91")
        >>> found["epoch"], found["metric"]
        ('3', '0.91')
    """
    cells = _CELL.findall(header)
    if name not in cells:
        return None
    metric = cells.index(name)
    lower = [cell.lower() for cell in cells[:metric]]
    epoch = lower.index("epoch") if "epoch" in lower else None
    columns = [r"(?P<epoch>\d+)" if column == epoch else r"[^\s|,;│┃]+" for column in range(metric)]
    pattern = rf"^[\s|│┃]*{_GAP.join((*columns, f'(?P<metric>{_VALUE})'))}(?:[\s|,;│┃]|$)"
    return pattern if len(pattern) <= MAX_PATTERN_CHARACTERS else None


def _general(text: str) -> str:
    """A pattern of a text whose numbers and spaces may differ."""
    return "".join(_parts(text))


def _parts(text: str) -> Iterable[str]:
    for number, space, other in _WORDS.findall(text):
        yield r"\S+?" if number else r"\s*" if space else re.escape(other)
