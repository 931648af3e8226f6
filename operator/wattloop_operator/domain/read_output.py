"""A whole output, read as a training's output is read: what counts, what was passed over and why.

The memory is bounded: of evaluations, reasons and lines so many are kept, and all are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import re2

from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import MAX_PATTERN_CHARACTERS, Reporting, ReportingSource
from wattloop_operator.domain.metric_rows import MetricReader
from wattloop_operator.domain.named_metric import NUMBER
from wattloop_operator.domain.output_line import MAX_QUOTED_CHARACTERS, plain_text
from wattloop_operator.domain.printed_epoch import EPOCH, printed_epoch
from wattloop_operator.domain.training_output import MAX_LINE_BYTES, Evaluation, OutputReader, OutputReading
from wattloop_operator.domain.unread_lines import UnreadLine

MAX_EVALUATIONS = 10_000
MAX_REASONS = 20
# Lines on which a proposed pattern is tried.
MAX_TRIED_LINES = 1_000
MAX_PROPOSED_VALUES = 3
# After the head of a table, to find its first row.
MAX_ROWS_TRIED = 10
_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class NumberedLine:
    """A line of an output.

    Attributes:
        number: Its number, from 1. Lines that a carriage return ends have that of the line feed after them.
        text: Its bytes, without the end.
    """

    number: int
    text: bytes


class LineSplitter:
    r"""Splits an output that comes in pieces. A line ends with a line feed or a carriage return, and is bounded.

    Example:
        >>> lines = LineSplitter()
        >>> [(each.number, each.text) for each in (*lines.feed(b"a\rb\nc"), *lines.rest())]
        [(1, b'a'), (1, b'b'), (2, b'c')]
    """

    def __init__(self) -> None:
        self._part = b""
        self._number = 1

    def feed(self, data: bytes) -> Iterator[NumberedLine]:
        """The lines that end in the next piece."""
        for index, of_line in enumerate(data.split(b"\n")):
            if index:
                yield NumberedLine(self._number, self._part)
                self._part = b""
                self._number += 1
            *ended, rest = of_line.split(b"\r")
            for text in ended:
                yield NumberedLine(self._number, self._part + text)
                self._part = b""
            # The rest of a long line is dropped as it comes.
            self._part = (self._part + rest)[: MAX_LINE_BYTES + 1]

    def rest(self) -> Iterator[NumberedLine]:
        """The last line, if it does not end."""
        if self._part:
            yield NumberedLine(self._number, self._part)


@dataclass
class PassedOver:
    """Lines that say something of the metric and have not counted, for one reason.

    Attributes:
        reason: Why, as the rest of a sentence that begins with the first line; that of the others differs in numbers.
        text: The first of the lines.
        last: Number of the last one.
        lines: How many there are.
    """

    reason: str
    text: str
    first: int
    last: int
    lines: int = 1


@dataclass(frozen=True)
class ProposedPattern:
    """A pattern that reads lines which name the metric.

    Attributes:
        pattern: For spec.reporting.pattern.
        reads: The first evaluations that it reads.
        has_more: Whether it reads others after these, or further lines were not tried.
    """

    pattern: str
    reads: tuple[Evaluation, ...]
    has_more: bool


@dataclass
class ReadOutput:
    """What was read.

    Attributes:
        evaluations: The evaluations that count, each with the number of its line.
        counted: How many there are, of which the first ones are kept.
        passed_over: The lines that name the metric and have not counted, by reason.
        other_reasons: How many lines were passed over for further reasons.
        reading: What the reader says of all of it.
        proposed: Patterns that read what was not read; empty if a line has counted.
    """

    lines: int = 0
    evaluations: list[Evaluation] = field(default_factory=list)
    counted: int = 0
    passed_over: list[PassedOver] = field(default_factory=list)
    other_reasons: int = 0
    reading: OutputReading = field(default_factory=OutputReading)
    proposed: list[ProposedPattern] = field(default_factory=list)

    def add(self, evaluation: Evaluation) -> None:
        """Add an evaluation that counts."""
        self.counted += 1
        if len(self.evaluations) < MAX_EVALUATIONS:
            self.evaluations.append(evaluation)

    def pass_over(self, line: NumberedLine, reason: str) -> None:
        """Add a line that was passed over."""
        # A reason quotes the number that it is about.
        kind = _DIGITS.sub("", reason)
        known = next((each for each in self.passed_over if _DIGITS.sub("", each.reason) == kind), None)
        if known is not None:
            known.lines, known.last = known.lines + 1, line.number
        elif len(self.passed_over) < MAX_REASONS:
            text = plain_text(line.text).strip()[:MAX_QUOTED_CHARACTERS]
            self.passed_over.append(PassedOver(reason, text, line.number, line.number))
        else:
            self.other_reasons += 1


def read_output(
    reporting: Reporting, target: Target, max_epochs: float, reader: MetricReader, lines: Iterable[NumberedLine]
) -> ReadOutput:
    """Read an output to its end, as if its training had ended well.

    Args:
        reporting: The format of the output.
        target: The target, whose metric is read.
        max_epochs: The most epochs of the training.
        reader: The reader of these, which has read nothing.
        lines: The lines.

    Raises:
        SlowPatternError: See `BoundedOutputReader.read`.
    """
    found, waiting = ReadOutput(), _Waiting()
    proposals = _Proposals(reporting, target, max_epochs)
    for line in lines:
        evaluation, found.lines = reader.read(line.text, line.number), line.number
        passed_over = reader.passed_over()
        if evaluation is not None:
            found.add(evaluation)
            waiting.remove(evaluation.number)
        if passed_over is not None:
            reason = passed_over.why(proposals.name)
            for each in waiting.replace(line, reason) if passed_over.may_count_later else [(line, reason)]:
                found.pass_over(*each)
        if not found.counted and reporting.pattern is None and reporting.source is ReportingSource.LOGS:
            proposals.note(line, passed_over)
    held = reader.at_end()
    if held is not None:
        found.add(held)
        waiting.remove(held.number)
    for each in waiting.lines():
        found.pass_over(*each)
    found.passed_over.sort(key=lambda each: each.first)
    found.reading = reader.reading
    if not found.counted:
        found.proposed = proposals.found(found.reading.table_head)
    return found


class _Waiting:
    """The latest line for each reason whose value may count after further lines."""

    def __init__(self) -> None:
        self._lines: dict[str, NumberedLine] = {}

    def replace(self, line: NumberedLine, reason: str) -> list[tuple[NumberedLine, str]]:
        """Let a line wait; the one before it that waited for the same reason has been passed over."""
        before = self._lines.get(reason)
        self._lines[reason] = line
        return [] if before is None else [(before, reason)]

    def remove(self, number: int) -> None:
        """Remove a line that has counted."""
        self._lines = {reason: line for reason, line in self._lines.items() if line.number != number}

    def lines(self) -> list[tuple[NumberedLine, str]]:
        """Those that still wait."""
        return [(line, reason) for reason, line in self._lines.items()]


class _Proposals:
    """Finds patterns that read the lines of an output of which none has counted."""

    def __init__(self, reporting: Reporting, target: Target, max_epochs: float) -> None:
        self.name = target.metric
        self._reporting, self._target, self._max_epochs = reporting, target, max_epochs
        self._lines: list[bytes] = []
        self._latest = ""
        self._has_epochs = self._has_untried = False

    def note(self, line: NumberedLine, passed_over: UnreadLine | None) -> None:
        """Note a line before any has counted."""
        if passed_over is not None and passed_over.may_have_pattern:
            self._latest = passed_over.text
        elif printed_epoch(plain_text(line.text), has_metric=False) is not None:
            self._has_epochs = True
        if len(self._lines) < MAX_TRIED_LINES:
            self._lines.append(line.text)
        else:
            self._has_untried = True

    def found(self, table_head: str) -> list[ProposedPattern]:
        """The patterns that read a value of the first lines."""
        if self._latest.strip().startswith(table_head) and table_head:
            self._latest = ""
        patterns = patterns_for(self._latest, self.name, has_epochs=self._has_epochs) if self._latest else []
        of_table = self._pattern_of_table(table_head) if table_head else None
        found = map(self._tried, patterns if of_table is None else [of_table, *patterns])
        return [each for each in found if each.reads]

    def _pattern_of_table(self, head: str) -> str | None:
        """The pattern of the first row that has a cell for each name of the head."""
        texts = [plain_text(line) for line in self._lines]
        begin = next((place for place, text in enumerate(texts, 1) if text.strip().startswith(head)), len(texts))
        rows = (pattern_for_table(head, text, self.name) for text in texts[begin : begin + MAX_ROWS_TRIED])
        return next((pattern for pattern in rows if pattern is not None), None)

    def _tried(self, pattern: str) -> ProposedPattern:
        reporting = self._reporting.model_copy(update={"pattern": pattern})
        reader = OutputReader(reporting, self._target, max_epochs=self._max_epochs)
        found = (each for line in self._lines if (each := reader.read(line)) is not None)
        reads = tuple(islice(found, MAX_PROPOSED_VALUES + 1))
        has_more = len(reads) > MAX_PROPOSED_VALUES or self._has_untried
        return ProposedPattern(pattern, reads[:MAX_PROPOSED_VALUES], has_more)


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
    parts = _PARTS.findall(text)
    return "".join(r"\S+?" if number else r"\s*" if space else re.escape(other) for number, space, other in parts)
