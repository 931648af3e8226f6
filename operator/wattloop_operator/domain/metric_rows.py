"""The metric in the rows of a file: JSON lines, or a table of comma-separated values with a head.

A row names its values, so nothing is guessed: the metric is the value of the key, or of the column, with its name.
A cell that is no number, such as ``91 %``, does not count, nor does a share in percent where the threshold is a
fraction.
"""

from __future__ import annotations

import csv
import json
import math
from array import array
from dataclasses import dataclass

import re2

from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting, ReportingSource
from wattloop_operator.domain.bounded_output import BoundedOutputReader
from wattloop_operator.domain.named_metric import (
    AS_FRACTION,
    IN_PERCENT,
    NUMBER,
    is_fraction,
    is_rate_in_percent,
    is_share,
    may_be_fraction,
    may_be_percent,
)
from wattloop_operator.domain.output_line import MAX_QUOTED_CHARACTERS
from wattloop_operator.domain.printed_epoch import EPOCH, PrintedEpochs
from wattloop_operator.domain.training_data import names_evaluation
from wattloop_operator.domain.training_output import MAX_LINE_BYTES, Evaluation, OutputReader, OutputReading
from wattloop_operator.domain.unread_lines import UnreadLine

DELIMITERS = (",", ";", "\t")
# Names of a column that counts steps or batches: a value beside it may be of some batches.
STEPS = frozenset({"step", "steps", "global_step", "batch", "batches", "batch_idx", "it", "itr", "iter", "iters"})
STEPS |= {"iteration", "iterations", "updates", "num_updates"}
# Rows that count; a file with more is no log of evaluations.
MAX_EVALUATIONS = 1_000_000
MAX_NAMES_QUOTED = 12
# Rows of one kind that do not count, before a notice says so.
UNREAD_ROWS = 3
OF_WHICH_RUN = (
    "so it is not known of which run it is: remove the file when the script starts, or name it after the run, with "
    "$(WATTLOOP_RECURRENCE) in spec.reporting.path"
)
_NUMBER = re2.compile(NUMBER)
_EPOCH_VALUE = re2.compile(rf"^(?P<{EPOCH}>.*)$")


@dataclass(frozen=True)
class _Row:
    """What a row says of the metric.

    Attributes:
        values: Its values by name, as text; a nested value has none.
        problem: Why it has none; empty if it has.
    """

    values: dict[str, str]
    problem: str = ""


class RowReader:
    """Reads the evaluations of one training from the rows of its file.

    Example:
        >>> target = Target.model_validate({"metric": "val_acc", "threshold": "0.9"})
        >>> rows = RowReader(target)
        >>> [rows.read(line) for line in (b"epoch,loss,val_acc", b"1,0.4,0.81", b"2,0.3,")]
        [None, Evaluation(metric=0.81, epoch=1.0), None]
        >>> rows.read(b'{"epoch": 2, "val_acc": 0.9}')
        Evaluation(metric=0.9, epoch=2.0)
    """

    def __init__(self, target: Target) -> None:
        self._name = target.metric
        self._is_share = is_fraction(target) and is_share(target.metric)
        self._is_rate_in_percent = is_rate_in_percent(target)
        self._epochs = PrintedEpochs(_EPOCH_VALUE, max_epochs=math.inf)
        self._head: list[str] | None = None
        self._delimiter = ","
        # Of each evaluation that has counted, by which a rewritten file is read on.
        self._counted = array("q")
        self._place = 0
        self._first: Evaluation | None = None
        self._passed_over: UnreadLine | None = None
        self._unread: UnreadLine | None = None
        self._unread_rows = 0
        # The last row of an earlier run, until the next row shows whether it goes on from it, and why that is in doubt.
        self._earlier: _Row | None = None
        self._goes_on: str | None = None
        self._keys: list[str] = []

    @property
    def reading(self) -> OutputReading:
        """What was read so far."""
        from_0 = self._epochs.counts_from_0
        if self._first is not None:
            return OutputReading(self._first.text(self._name), counts_from_0=from_0)
        at_end = ""
        if self._unread is not None:
            at_end = f"the row {self._unread.text[:MAX_QUOTED_CHARACTERS]!r} {self._unread.cause}"
        elif self._keys:
            at_end = f"no row has a key {self._name!r}: the keys are {_quoted(self._keys)}"
        known = self._unread is not None and (self._unread_rows >= UNREAD_ROWS or bool(self._goes_on))
        return OutputReading(unread=f"no row has counted; {at_end}" if known else "", unread_at_end=at_end)

    def passed_over(self) -> UnreadLine | None:
        """See `OutputReader.passed_over`."""
        return self._passed_over

    def at_end(self) -> Evaluation | None:
        """See `OutputReader.at_end`: a row waits for nothing."""
        return None

    def restart(self) -> None:
        """Note that the file is rewritten, from its first row: rows that have counted do not count again."""
        self._head, self._place = None, 0
        self._epochs = PrintedEpochs(_EPOCH_VALUE, max_epochs=math.inf)
        self._earlier = self._goes_on = None

    def pass_earlier(self, head: bytes, tail: bytes) -> None:
        """Pass the rows that the file had before this run.

        A run that writes the same rows again before its own ones leaves the same file as one that adds to it. Only rows
        whose epochs begin again, or that follow another head, are of a run that adds.

        Args:
            head: The first line of the file.
            tail: The last bytes of those rows.
        """
        if not _text(head).startswith("{"):
            self._read_cells(_text(head))
        for line in tail.splitlines():
            row = self._row(_text(line))
            value = "" if row is None else row.values.get(self._name, "").strip()
            if row is not None and value and not self._problem(row, value):
                self._earlier = row

    def read(self, line: bytes, number: int = 0) -> Evaluation | None:
        """See `OutputReader.read`."""
        self._passed_over = None
        text = _text(line)
        if not text:
            return None
        row = self._row(text)
        if row is None:
            self._earlier = self._goes_on = None
            return None
        value = row.values.get(self._name, "").strip()
        problem = row.problem or self._problem(row, value)
        if problem:
            self._note_unread(UnreadLine(text, cause=problem))
        if problem or not value:
            return None
        if self._earlier is not None:
            # A row may be of a run that has written the earlier rows, too, unless its epochs begin again.
            epoch, last = self._epoch_in(row), self._epoch_in(self._earlier)
            where = f"after epoch {last}" if epoch and last else "without an epoch"
            cause = f"goes on {where} from rows that the file had before the start, {OF_WHICH_RUN}"
            self._goes_on = "" if epoch and last and float(epoch) <= float(last) else cause
            self._earlier = None
        if self._goes_on:
            self._note_unread(UnreadLine(text, cause=self._goes_on))
            return None
        epoch = self._epoch_in(row)
        if epoch:
            self._epochs.read(epoch, has_metric=True)
            self._epochs.note_evaluation()
        return self._counted_once(Evaluation(float(value), self._epochs.completed if epoch else None, text, number))

    def _row(self, text: str) -> _Row | None:
        if not text:
            return None
        return self._read_json(text) if text.startswith("{") else self._read_cells(text)

    def _counted_once(self, found: Evaluation) -> Evaluation | None:
        key = hash((found.epoch, repr(found.metric)))
        if self._place < len(self._counted) and self._counted[self._place] == key:
            self._place += 1
            return None
        del self._counted[self._place :]
        if self._place >= MAX_EVALUATIONS:
            return None
        self._counted.append(key)
        self._place += 1
        self._first = self._first or found
        return found

    @staticmethod
    def _epoch_in(row: _Row) -> str:
        return next((each.strip() for name, each in row.values.items() if name.lower() == EPOCH), "")

    def _problem(self, row: _Row, value: str) -> str:
        """Why the metric's value in a row does not count; empty if it does, or if there is none."""
        if not value:
            return ""
        for name, each in ((self._name, value), (EPOCH, self._epoch_in(row))):
            if each and not _NUMBER.fullmatch(each):
                return f"has {name} {each[:MAX_QUOTED_CHARACTERS]!r}, which is no number: write the number alone"
        if self._is_share and may_be_percent(float(value)):
            return f"has {self._name} {IN_PERCENT}"
        if self._is_rate_in_percent and may_be_fraction(float(value)):
            return f"has {self._name} {AS_FRACTION}"
        steps = [name for name, each in row.values.items() if name.lower() in STEPS and each.strip()]
        if steps and not names_evaluation(self._name):
            return (
                f"has {self._name} beside {steps[0]!r}, so perhaps of some batches: name it as of an evaluation, such "
                f"as val_{self._name}, or write the rows of evaluations without {steps[0]!r}"
            )
        return ""

    def _read_json(self, text: str) -> _Row:
        try:
            # Numbers stay as they are written, so that none is too large.
            found = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
        except (ValueError, RecursionError):
            return _Row({}, "is no JSON object in one line: write each row with json.dumps and a line feed")
        values = {name: each for name, each in found.items() if isinstance(each, str)}
        if found.get(self._name) is not None and self._name not in values:
            return _Row({}, f"has {self._name} that is no number: write the number alone")
        if not self._keys:
            self._keys = list(found)
        return _Row(values)

    def _read_cells(self, text: str) -> _Row | None:
        """The row of a table; None of its head."""
        if self._head is None:
            heads = {each: _cells(text.removeprefix("#"), each) for each in DELIMITERS}
            self._delimiter = next((each for each in DELIMITERS if self._name in heads[each]), DELIMITERS[0])
            self._head = heads[self._delimiter]
            return None
        if self._name not in self._head:
            return _Row({}, f"has no column {self._name!r}: the columns are {_quoted(self._head)}")
        cells = _cells(text.removeprefix("#"), self._delimiter)
        if self._name in cells:
            # A table that is begun again, as by a script that appends.
            self._head = cells
            return None
        if len(cells) != len(self._head):
            return _Row({}, f"has {len(cells)} cells, and the head has {len(self._head)}")
        return _Row(dict(zip(self._head, cells, strict=True)))

    def _note_unread(self, line: UnreadLine) -> None:
        self._passed_over = self._unread = line
        self._unread_rows += 1


MetricReader = OutputReader | RowReader
"""Reads the evaluations of one training from its lines, in their order."""


def reader_of(reporting: Reporting, target: Target, *, max_epochs: float = math.inf) -> MetricReader:
    """The reader of an output or, with `source: File`, of the rows of a file."""
    if reporting.source is ReportingSource.FILE:
        return RowReader(target)
    return BoundedOutputReader(reporting, target, max_epochs=max_epochs)


def _text(line: bytes) -> str:
    return line[:MAX_LINE_BYTES].decode("utf-8", "replace").removeprefix("\ufeff").strip()


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _quoted(names: list[str]) -> str:
    more = len(names) - MAX_NAMES_QUOTED
    shown = ", ".join(repr(name[:MAX_QUOTED_CHARACTERS]) for name in names[:MAX_NAMES_QUOTED])
    return f"{shown} and {more} more" if more > 0 else shown
