"""What to tell the user of a training of whose output no line has counted, though some name the metric."""

from __future__ import annotations

import re

from wattloop_operator.domain.named_metric import NUMBER, NamedValue
from wattloop_operator.domain.output_line import MAX_QUOTED_CHARACTERS
from wattloop_operator.domain.progress_bar import ProgressBar

# So many epochs begin before an output is said to have no line that counts; some evaluate only every few.
UNREAD_EPOCHS = 3
UNREAD_MATCHES = 3
# Cells of a row, and which of them are numbers; a line with a separator beside a name is no table.
MIN_TABLE_NUMBERS = 2
_CELLS = re.compile(r"[\s|,;:│┃()]+")
_CELL_NUMBER = re.compile(rf"(?:{NUMBER})%?")
_SEPARATOR = re.compile(r"[=:]\s*[-+.0-9]")
_SHARE = re.compile(r"\s[0-9]{1,3}%")
# What a user changes where no line counts; the sentence before it says what to print.
LINE_REMEDY = (
    "such as epoch=1 {metric}=0.5 after each evaluation, or set spec.reporting.pattern or metricName to what the "
    "script prints"
)


class UnreadLines:
    """The lines before the first evaluation that name the metric or match the user's pattern.

    The latest one is quoted, since an earlier one may be of the start.

    Args:
        name: The metric's name in the output.

    Example:
        >>> lines = UnreadLines("accuracy")
        >>> lines.note_named("accuracy: 71%", NamedValue(doubt="in percent …", is_certain=True))
        >>> lines.notice
        "no line has counted; the line 'accuracy: 71%' has accuracy in percent …"
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._line = self._unread_group = ""
        self._value = NamedValue()
        self._is_bar = self._is_bar_over_epochs = False
        self._header = ""
        self._rows = 0
        self._matches = 0
        self._epochs: set[float] = set()

    def note_epoch(self, epoch: float) -> None:
        """Note that the output has an epoch's number."""
        if self.quotes_named:
            self._epochs.add(epoch)

    @property
    def quotes_named(self) -> bool:
        """Whether a line that names the metric is still quoted; after the beginning of the third epoch none is."""
        return len(self._epochs) < UNREAD_EPOCHS

    def note_named(
        self, line: str, value: NamedValue, bar: ProgressBar | None = None, *, is_over_epochs: bool = False
    ) -> None:
        """Note a line that names the metric, while `quotes_named`.

        Args:
            line: The line.
            value: What it says of the metric.
            bar: Its progress bar.
            is_over_epochs: Whether the bar may be one over epochs, since the output has no epochs.
        """
        self._quote(line)
        self._value = value
        self._is_bar = bar is not None and not bar.is_full
        self._is_bar_over_epochs = self._is_bar and is_over_epochs and bar is not None and bar.is_half

    def note_table(self, line: str) -> bool:
        """Note a line that may be of a table; returns whether it is the head of one that names the metric.

        Example:
            >>> lines = UnreadLines("accuracy")
            >>> [lines.note_table(line) for line in ("epoch  loss  accuracy", "0  0.5  0.91")]
            [True, False]
            >>> lines.notice_at_end.partition(":")[0]
            "the line 'epoch  loss  accuracy' has accuracy at the head of a table, whose rows have no names"
        """
        # Ultralytics draws a bar behind the head.
        text = _SHARE.split(line[:MAX_QUOTED_CHARACTERS], 1)[0]
        cells = [cell for cell in _CELLS.split(text) if cell]
        numbers = sum(_CELL_NUMBER.fullmatch(cell) is not None for cell in cells)
        if self._header and numbers >= MIN_TABLE_NUMBERS and 2 * numbers >= len(cells):
            self._rows += 1
        if self._name in cells and len(cells) >= MIN_TABLE_NUMBERS and numbers == 0 and _SEPARATOR.search(text) is None:
            self._header, self._rows = line.strip()[:MAX_QUOTED_CHARACTERS], 0
            return True
        return False

    def note_match(self, line: str, group: str) -> None:
        """Note that a user's pattern matches a line, but that the group `metric` is no number."""
        self._matches += 1
        self._quote(line)
        self._unread_group = group[:MAX_QUOTED_CHARACTERS]

    def _quote(self, line: str) -> None:
        self._line = line.strip()[:MAX_QUOTED_CHARACTERS]

    @property
    def notice(self) -> str:
        """What no line has counted for and what to do; empty if nothing is known of it yet.

        It is said when the third epoch begins or a pattern has matched three lines, of a progress bar without epochs
        when it is half full, and at once of a number that certainly has another meaning.
        """
        if self._value.is_certain or self._matches >= UNREAD_MATCHES or self._is_bar_over_epochs:
            return f"no line has counted; {self._why_unread}"
        if self._rows >= UNREAD_EPOCHS and not self._line:
            return f"no line has counted; {self._why_unread}"
        if self.quotes_named or not self._line:
            return ""
        return f"no line has counted in {UNREAD_EPOCHS} epochs; {self._why_unread}"

    @property
    def notice_at_end(self) -> str:
        """Why the latest line that names the metric or matches the pattern has not counted; empty if there is none."""
        return self._why_unread if self._line or self._rows else ""

    @property
    def _why_unread(self) -> str:
        line, name, remedy = repr(self._line), self._name, LINE_REMEDY.format(metric=self._name)
        if self._matches:
            return (
                f"spec.reporting.pattern matches the line {line}, whose group metric is "
                f"{self._unread_group!r}, which is no number: let the group have the number alone"
            )
        if self._is_bar_over_epochs:
            return (
                f"the line {line} is a progress bar, which counts when it is full: "
                f"if it is a bar over epochs, print a line {remedy}"
            )
        if not self._line:
            head = f"the line {self._header!r} has {name} at the head of a table, whose rows have no names"
            return f"{head}: print a line {remedy}"
        if self._value.doubt:
            return f"the line {line} has {name} {self._value.doubt}"
        other = self._value.other_name
        if other:
            return f"the line {line} names {name} as {other!r}: set spec.reporting.metricName to {other!r}"
        place = " in a bar or a step that is not the last one" if self._is_bar else ""
        return f"the line {line} names {name}{place}: print {'a line' if place else 'one'} {remedy}"
