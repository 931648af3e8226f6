"""What to tell the user of a training of whose output no line has counted, though some name the metric."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice

from wattloop_operator.domain.named_metric import NUMBER, NamedValue
from wattloop_operator.domain.output_line import MAX_QUOTED_CHARACTERS
from wattloop_operator.domain.progress_bar import ProgressBar
from wattloop_operator.domain.training_data import names_data, names_evaluation

# Ratio of SequenceMatcher: val_acuracy and val_accuracy have 0.96, val_loss and train_loss 0.67.
MIN_RATIO = 0.75
_WORD = r"[A-Za-z_][A-Za-z0-9_./@-]{0,99}"
# One word or two before a number. Bounded, since the text is a tenant's.
_NAMES = re.compile(
    rf"(?<![A-Za-z0-9_./@-])((?:{_WORD} )?({_WORD}))[\"']?\s{{0,8}}[=:]?\s{{0,8}}[\"']?(?:{NUMBER})(?![A-Za-z0-9_])"
)
_JOINTS = re.compile("[ _./-]+")
_MAX_NAMES_OF_LINE = 16
_MAX_NAMES = 1_000
_MAX_SEARCHED_CHARACTERS = 1_000


class SimilarName:
    """The name with a number behind it that is most similar to a metric's.

    Attributes:
        name: The similar name; empty if there is none.
        line: The last line that has it.

    Example:
        >>> similar = SimilarName("val_acuracy")
        >>> for line in ("epoch 1 train_accuracy=0.9", "epoch 1 val_accuracy=0.83", "1 file of val_acc"):
        ...     similar.note(line)
        >>> similar.name, similar.line
        ('val_accuracy', 'epoch 1 val_accuracy=0.83')
    """

    def __init__(self, metric: str) -> None:
        self.name = self.line = ""
        self._plain = _plain(metric)
        self._is_of_training = names_data(metric) and not names_evaluation(metric)
        self._ratio = MIN_RATIO
        self._known: set[str] = set()

    def note(self, text: str) -> None:
        """Note a line that does not have the metric's name."""
        for found in islice(_NAMES.finditer(text[:_MAX_SEARCHED_CHARACTERS]), _MAX_NAMES_OF_LINE):
            for name in found.groups():
                if name == self.name:
                    self.line = text.strip()[:MAX_QUOTED_CHARACTERS]
                elif name not in self._known and len(self._known) < _MAX_NAMES:
                    self._known.add(name)
                    self._compare(name, text)

    def _compare(self, name: str, text: str) -> None:
        if names_data(name) and not names_evaluation(name) and not self._is_of_training:
            return
        ratio = SequenceMatcher(None, self._plain, _plain(name)).ratio()
        if ratio > self._ratio:
            self._ratio, self.name, self.line = ratio, name, text.strip()[:MAX_QUOTED_CHARACTERS]


def _plain(name: str) -> str:
    return _JOINTS.sub("_", name.lower())


# So many epochs begin before an output is said to have no line that counts; some evaluate only every few.
UNREAD_EPOCHS = 3
UNREAD_MATCHES = 3
# Cells of a row, and which of them are numbers; a line with a separator beside a name is no table.
MIN_TABLE_NUMBERS = 2
_CELLS = re.compile(r"[\s|,;:│┃()]+")
_CELL_NUMBER = re.compile(rf"(?:{NUMBER})%?")
_SEPARATOR = re.compile(r"[=:]\s*[-+.0-9]")
_SHARE = re.compile(r"\s[0-9]{1,3}%")
# Why a line whose value waits for those after it has not counted.
MAY_PRECEDE = (
    "has a value that meets the target before any epoch, perhaps of an earlier model: it counts if the next value "
    "meets the target too, or if no training follows and the script ends well"
)
AT_TABLE_HEAD = "has {} at the head of a table, whose rows have no names"
# What a user changes where no line counts; the sentence before it says what to print.
LINE_REMEDY = (
    "such as epoch=1 {metric}=0.5 after each evaluation, or set spec.objective.target.metric or "
    "spec.reporting.pattern to what the script prints"
)


NOTHING_SAID = NamedValue()


@dataclass(frozen=True)
class UnreadLine:
    """A line that names the metric or matches the user's pattern, and has not counted.

    Attributes:
        value: What it says of the metric.
        bar: Its progress bar; None if it has none.
        may_be_over_epochs: Whether the bar may be one over epochs, since the output has no epochs.
        group: What the group `metric` of the user's pattern is, which is no number; None without a pattern.
        cause: Why the line has not counted although its number was read; empty otherwise.
    """

    text: str
    value: NamedValue = NOTHING_SAID
    bar: ProgressBar | None = None
    may_be_over_epochs: bool = False
    group: str | None = None
    cause: str = ""

    @property
    def may_count_later(self) -> bool:
        """Whether its value may count after further lines: one before any epoch, or of a bar that is drawn again."""
        is_full = self.bar is not None and self.bar.is_full and self.value.number is not None
        return self.cause == MAY_PRECEDE or is_full

    @property
    def may_have_pattern(self) -> bool:
        """Whether a pattern may read it: what it says is of the evaluation's data, in a form that is not known."""
        is_part = self.value.number is not None or (self.bar is not None and not self.bar.is_full)
        is_other = self.value.is_certain or self.value.is_of_other_data or bool(self.value.other_names)
        return not (self.cause or self.group is not None or is_part or is_other)

    @property
    def is_over_epochs(self) -> bool:
        """Whether the bar is one over epochs that is half full: with it, no line counts before the end."""
        return self.may_be_over_epochs and self.bar is not None and not self.bar.is_full and self.bar.is_half

    def why(self, name: str) -> str:
        """Why it has not counted and what to do, as the rest of a sentence that begins with the line.

        Example:
            >>> UnreadLine("val_acc: 0.9", NamedValue(other_names=("val_acc",))).why("acc")
            "names acc as 'val_acc': set spec.objective.target.metric to 'val_acc'"
        """
        if self.cause:
            return self.cause
        if self.group is not None:
            return (
                f"matches spec.reporting.pattern, and its group metric is {self.group!r}, which is no number: let the "
                "group have the number alone"
            )
        remedy = LINE_REMEDY.format(metric=name)
        if self.is_over_epochs:
            return f"is a progress bar, which counts when it is full: if it is a bar over epochs, print a line {remedy}"
        return self._why_unread(name, remedy)

    def _why_unread(self, name: str, remedy: str) -> str:
        others = self.value.other_names
        if self.value.doubt:
            return f"has {name} {self.value.doubt}"
        if others:
            one = repr(others[0]) if len(others) == 1 else "the one of the evaluation"
            return f"names {name} as {' and '.join(map(repr, others))}: set spec.objective.target.metric to {one}"
        if self.bar is None or (self.bar.is_full and self.value.number is None):
            return f"names {name}: print one {remedy}"
        if self.bar.is_full:
            return f"is a full bar with {name} that is drawn again"
        return f"names {name} in a bar or a step that is not the last one: print a line {remedy}"


class UnreadLines:
    """The lines before the first evaluation that name the metric or match the user's pattern.

    The latest one is quoted, since an earlier one may be of the start; but one that has the metric by the name of an
    evaluation goes before those that do not.

    Attributes:
        table_head: The head of a table that names the metric; empty if there is none.

    Example:
        >>> lines = UnreadLines("accuracy")
        >>> lines.note_named(UnreadLine("accuracy: 71%", NamedValue(doubt="in percent …", is_certain=True)))
        >>> lines.notice
        "no line has counted; the line 'accuracy: 71%' has accuracy in percent …"
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._latest: UnreadLine | None = None
        self._similar = SimilarName(name)
        self.table_head = ""
        self._rows = 0
        self._matches = 0
        self._epochs: set[float] = set()

    def note_epoch(self, epoch: float) -> None:
        """Note that the output has an epoch's number."""
        if self._is_early:
            self._epochs.add(epoch)

    @property
    def _is_early(self) -> bool:
        return len(self._epochs) < UNREAD_EPOCHS

    @property
    def quotes_named(self) -> bool:
        """Whether a line that names the metric is quoted; after the beginning of the third epoch only the first is."""
        return self._is_early or self._latest is None

    def note_named(self, line: UnreadLine) -> None:
        """Note a line that names the metric, while `quotes_named`."""
        latest = self._latest
        is_better = latest is not None and any(map(names_evaluation, latest.value.other_names))
        if not is_better or line.value.is_certain or any(map(names_evaluation, line.value.other_names)):
            self._latest = line

    def note_other(self, text: str) -> None:
        """Note a line that does not name the metric."""
        if self._latest is None:
            self._similar.note(text)

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
        if self.table_head and numbers >= MIN_TABLE_NUMBERS and 2 * numbers >= len(cells):
            self._rows += 1
        if self._name in cells and len(cells) >= MIN_TABLE_NUMBERS and numbers == 0 and _SEPARATOR.search(text) is None:
            self.table_head, self._rows = text.strip(), 0
            return True
        return False

    def note_match(self, line: UnreadLine) -> None:
        """Note that a user's pattern matches a line, but that the group `metric` is no number."""
        self._matches += 1
        self._latest = line

    @property
    def notice(self) -> str:
        """What no line has counted for and what to do; empty if nothing is known of it yet.

        It is said when the third epoch begins or a pattern has matched three lines, of a progress bar without epochs
        when it is half full, and at once of a number that certainly has another meaning.
        """
        latest = self._latest
        is_clear = latest is not None and (latest.value.is_certain or latest.is_over_epochs)
        if is_clear or self._matches >= UNREAD_MATCHES or (latest is None and self._rows >= UNREAD_EPOCHS):
            return f"no line has counted; {self.notice_at_end}"
        if self._is_early or (latest is None and not self._similar.name):
            return ""
        return f"no line has counted in {UNREAD_EPOCHS} epochs; {self.notice_at_end}"

    @property
    def notice_at_end(self) -> str:
        """Why the quoted line that names the metric or matches the pattern has not counted; empty if there is none.

        Without one, a name that is similar to the metric's, if a line has it.
        """
        if self._latest is not None:
            return f"the line {self._latest.text.strip()[:MAX_QUOTED_CHARACTERS]!r} {self._latest.why(self._name)}"
        if not self._rows:
            return self._did_you_mean()
        head = f"the line {self.table_head!r} {AT_TABLE_HEAD.format(self._name)}"
        return f"{head}: print a line {LINE_REMEDY.format(metric=self._name)}"

    def _did_you_mean(self) -> str:
        name = self._similar.name
        if not name:
            return ""
        return (
            f"no line has {self._name} and a number, but {self._similar.line!r} has {name}: did you mean {name}? "
            f"Then set spec.objective.target.metric to {name!r}"
        )
