"""The metric and the epochs in the lines that a training writes.

A pattern is a regular expression of RE2, whose time is linear in the length of the line. Lines and patterns are
bounded in length.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import re2

from wattloop.printable import quoted
from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting, ReportingSource
from wattloop_operator.domain.named_metric import (
    NamedMetric,
    NamedValue,
    is_fraction,
    is_rate_in_percent,
    with_plain_scalars,
)
from wattloop_operator.domain.output_line import MAX_QUOTED_CHARACTERS, RankLines, parts_of, plain_text
from wattloop_operator.domain.printed_epoch import PrintedEpochs, printed_epoch
from wattloop_operator.domain.progress_bar import ProgressBar, progress_bar_of, step_count_of
from wattloop_operator.domain.training_data import PhaseHeadings
from wattloop_operator.domain.unread_lines import AT_TABLE_HEAD, MAY_PRECEDE, UnreadLine, UnreadLines

# The rest of a longer line is not searched.
MAX_LINE_BYTES = 16 * 1024
PATTERN_MEMORY_BYTES = 1024 * 1024
METRIC = "metric"
# Why a line whose number was read has not counted.
REPEATED = "is a line of this epoch, or of this place without epochs, again or of a further rank, and counts once"
UNDER_HEADING = "under the line {!r}, and so of the training data: print the one of the evaluation, too"
BESIDE_EVALUATION = (
    "without a word for its data, and the line {!r} has that of an evaluation: set spec.objective.target.metric to the "
    "whole name of the evaluation's, or read this one with spec.reporting.pattern"
)
COUNTED_BEFORE = (
    "the value in {!r} has counted, and is perhaps of the training data, since a later line, {!r}, has that of an "
    "evaluation: set spec.objective.target.metric to the whole name of the evaluation's"
)
EARLIER = "of an earlier evaluation, such as the best one, and the output has each evaluation by itself"
# Scripts without epochs, such as nanoGPT, write "step 250: train loss 1.9, val loss 2.1", after what logging puts
# before it. A line such as "loaded checkpoint: step 250, val loss 2.1" is no evaluation.
_STEP = r"(?i)(?:(?:^|[|\]])\s*|[A-Za-z]:)(?:step|iter|iteration)[\s=:#\[]*[0-9]+(?:$|[^A-Za-z0-9_.%])"
# LightGBM: "Early stopping, best iteration is:", and the next line repeats that one.
_BEST_FOLLOWS = re.compile(r"(?i)\bbest\b[^0-9=]{0,40}:\s*$")


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of the metric in the output.

    Attributes:
        metric: Its value; NaN or infinite if the training diverged.
        epoch: Epochs completed at the evaluation; None if the output has none.
        line: The text that it was read from.
        number: That line's number, as the reader was given it.
        is_named: Whether the line, or the metric's name, says that the value is of an evaluation.
    """

    metric: float
    epoch: float | None
    line: str = field(default="", compare=False, repr=False)
    number: int = field(default=0, compare=False, repr=False)
    is_named: bool = field(default=False, compare=False, repr=False)

    def text(self, name: str) -> str:
        """The evaluation as a person reads it: epoch, metric and line.

        Example:
            >>> Evaluation(0.91, 3.0, "Epoch 3: val_acc=0.91").text("val_acc")
            "epoch 3, val_acc 0.91, from 'Epoch 3: val_acc=0.91'"
        """
        epoch = "" if self.epoch is None else f"epoch {self.epoch:g}, "
        return f"{epoch}{name} {self.metric:g}, from {self.line.strip()[:MAX_QUOTED_CHARACTERS]!r}"


@dataclass(frozen=True)
class OutputReading:
    """What was read of an output so far.

    Attributes:
        first: The first evaluation that counted, as `Evaluation.text`; empty before.
        unread: See `UnreadLines.notice`; empty once a line has counted.
        unread_at_end: See `UnreadLines.notice_at_end`; empty once a line has counted.
        table_head: The head of a table that names the metric, whose rows do not; empty once a line has counted.
        repeated: See `RankLines.notice`.
        counted_in_doubt: Why a value that has counted is perhaps of the training data; empty if none is.
        counts_from_0: Whether an evaluation has shown that the script counts epochs from 0.
    """

    first: str = ""
    unread: str = ""
    unread_at_end: str = ""
    table_head: str = ""
    repeated: str = ""
    counted_in_doubt: str = ""
    counts_from_0: bool = False

    @property
    def doubt(self) -> str:
        """What is in doubt of what has counted; empty if nothing is."""
        return self.counted_in_doubt or self.repeated


class OutputReader:
    """Reads the evaluations from the lines of one training, in their order.

    Args:
        max_epochs: The most epochs of the training.
        has_counted: Whether an evaluation of this training has counted before these lines.
        counts_from_0: Whether an evaluation before these lines has shown that the script counts epochs from 0.

    Raises:
        PatternError: The pattern cannot be used.

    Example:
        >>> target = Target.model_validate({"metric": "accuracy", "threshold": "0.9"})
        >>> reader = OutputReader(Reporting.model_validate({"source": "Logs"}), target)
        >>> reader.read(b"epoch=3 loss=0.21 accuracy=0.91")
        Evaluation(metric=0.91, epoch=3.0)
        >>> reader.read(b"{'accuracy': 0.95, 'epoch': 4.0}")
        Evaluation(metric=0.95, epoch=4.0)
        >>> reader = OutputReader(Reporting.model_validate({"source": "Logs"}), target)
        >>> reader.read(b"Epoch 5/30 | loss 0.11 | accuracy 0.96")
        Evaluation(metric=0.96, epoch=5.0)
    """

    def __init__(
        self,
        reporting: Reporting,
        target: Target,
        *,
        max_epochs: float = math.inf,
        has_counted: bool = False,
        counts_from_0: bool = False,
    ) -> None:
        self._name = target.metric
        self._pattern: Any = None
        self._named: NamedMetric | None = None
        if reporting.pattern is None:
            self._named = NamedMetric(
                self._name, is_fraction=is_fraction(target), is_rate_in_percent=is_rate_in_percent(target)
            )
            self._step = _compiled(_STEP)
        else:
            self._pattern = compiled_pattern(reporting.pattern)
        self._epochs = PrintedEpochs(self._pattern, max_epochs=max_epochs, counts_from_0=counts_from_0)
        self._bars = _BarEvaluations()
        self._ranks = RankLines()
        self._headings = PhaseHeadings()
        # A line that names the metric as that of an evaluation, before any epoch (False) or since (True).
        self._of_evaluation: dict[bool, str] = {}
        self._announces_best = False
        self._has_refused, self._counted_in_doubt = False, ""
        self._has_separator = False
        # Whether an evaluation that is no record was read before any epoch (False), or since (True).
        self._evaluated: set[bool] = set()
        self._first: Evaluation | None = None
        self._passed_over: UnreadLine | None = None
        self._number = 0
        # A termination message is written at the end.
        self._may_precede = not has_counted and reporting.source is not ReportingSource.TERMINATION_MESSAGE
        self._unread = UnreadLines(self._name)
        self._target = target.run_target
        self._before_epochs: Evaluation | None = None
        self._epoch_after: float | None = None

    @property
    def reading(self) -> OutputReading:
        """What was read so far."""
        first, unread = self._first, self._unread
        is_read = first is not None
        return OutputReading(
            first="" if first is None else first.text(self._name),
            unread="" if is_read else unread.notice,
            unread_at_end="" if is_read else unread.notice_at_end,
            table_head="" if is_read else unread.table_head,
            repeated=self._ranks.notice,
            counted_in_doubt=self._counted_in_doubt,
            counts_from_0=self._epochs.counts_from_0,
        )

    def passed_over(self) -> UnreadLine | None:
        """The line that was read last, if it says something of the metric and has not counted; else None."""
        line = self._passed_over
        if line is not None and self._named is not None and line.value == NamedValue():
            epoch = printed_epoch(line.text, has_metric=True)
            return replace(line, value=self._why_unread(self._named, line.text, has_epoch=epoch is not None))
        return line

    def read(self, line: bytes, number: int = 0) -> Evaluation | None:
        """Read the next line, with its number, if that is wanted; None if it has no evaluation.

        An epoch that stands on an earlier line counts for the evaluations after it. Before any epoch, a first value
        that meets the target may be that of an earlier model, or of the script's configuration: it waits for the end
        (`at_end`), and does not count if a training follows. If the next value meets the target too, either value is
        that of the first epoch, so the first one counts.
        """
        self._passed_over, self._number = None, number
        text = plain_text(line[:MAX_LINE_BYTES])
        parts = parts_of(text)
        # A user's own pattern is also searched in the whole line.
        for part in parts if self._named is not None or len(parts) == 1 else (text, *parts[1:]):
            evaluation = self._read_text(part)
            if evaluation is not None:
                return evaluation
        return None

    def _read_text(self, text: str) -> Evaluation | None:
        named, line = self._named, text
        if named is not None:
            text = with_plain_scalars(text)
        is_named = named is None or named.is_named(text)
        epoch = self._epochs.read(text, has_metric=is_named)
        # A user's own pattern decides by itself what counts.
        bar = None if named is None else progress_bar_of(text)
        value = self._of_pattern(text) if named is None else self._of_name(named, text, epoch, bar)
        self._headings.note(text, has_epoch=epoch is not None)
        metric = number_in(value.number)
        if metric is not None and (bar is None or bar.is_full):
            self._epochs.note_evaluation()
        completed = self._epochs.completed
        if epoch is not None and completed is not None:
            self._note_epoch_after(completed)
        found = None if metric is None else Evaluation(metric, completed, line, self._number, value.is_of_evaluation)
        evaluation = self._counted(found, value, line, completed, bar)
        if named is None:
            return evaluation
        if evaluation is None and is_named and self._epoch_after is not None:
            self._before_epochs = None
        # Another evaluation than this line's may count after it.
        if is_named and (evaluation is None or evaluation is not found):
            self._passed_over = self._passed_over or UnreadLine(line, value, bar=bar)
        if self._first is None:
            self._note_unread(named, line, epoch, value, bar)
        return evaluation

    def _counted(
        self, found: Evaluation | None, value: NamedValue, text: str, epoch: float | None, bar: ProgressBar | None
    ) -> Evaluation | None:
        """The evaluation that counts after the next line."""
        is_drawn = bar is not None and bar.is_drawn
        ended = self._bars.ended(epoch, bar, is_of_training=value.is_of_other_data)
        if bar is not None and not bar.is_full:
            found = None
        if found is None or is_drawn:
            self._ranks.note_other(text)
        elif self._ranks.is_repeated(text, epoch):
            self._passed_over, found = UnreadLine(text, cause=REPEATED), None
        if is_drawn:
            if found is not None:
                self._bars.hold(found)
            elif value.is_of_other_data:
                self._bars.drop_unnamed()
            found = None
        elif found is not None:
            # With an evaluation of the epoch before it, this line's counts at the next line.
            self._bars.hold(None if ended is None else found, is_past=True)
        evaluation = found if ended is None else ended
        if evaluation is None:
            return None
        is_of_line = evaluation is found
        may_precede = self._may_precede and is_of_line and self._may_be_before_training(evaluation, text)
        self._may_precede = False
        before, self._before_epochs = self._before_epochs, None
        if may_precede:
            self._before_epochs, self._passed_over = evaluation, UnreadLine(text, cause=MAY_PRECEDE)
            return None
        if before is not None and self._may_be_before_training(evaluation, text):
            self._before_epochs, evaluation = evaluation, before
            self._passed_over = UnreadLine(text, cause=MAY_PRECEDE)
        self._first = self._first or evaluation
        return evaluation

    def at_end(self) -> Evaluation | None:
        """The value that waited for the end, once the training has ended well; None if there is none.

        It is that of the last epoch's bar, or one before any epoch. That one is not of a training that follows, whose
        values are not read: of two epochs, or of one with a line that names the metric.
        """
        before, self._before_epochs = self._before_epochs, None
        evaluation = self._bars.at_end() or before
        self._first = self._first or evaluation
        return evaluation

    def _note_epoch_after(self, epoch: float) -> None:
        if self._before_epochs is None:
            return
        if self._epoch_after is None:
            self._epoch_after = epoch
        elif self._epoch_after != epoch:
            self._before_epochs = None

    def _may_be_before_training(self, evaluation: Evaluation, text: str) -> bool:
        if self._named is None or evaluation.epoch is not None or self._step.search(text) is not None:
            return False
        return math.isfinite(evaluation.metric) and self._target.reached_by(evaluation.metric)

    def _of_pattern(self, text: str) -> NamedValue:
        match = self._pattern.search(text)
        found = None if match is None else match.group(METRIC)
        # The comma of "loss 0.5, lr 0.1" is in what \S+ takes, as is the bracket of "np.float64(0.5)".
        number = None if found is None else with_plain_scalars(found.rstrip(",;"))
        if found is not None and number_in(number) is None:
            self._passed_over = UnreadLine(text, group=found[:MAX_QUOTED_CHARACTERS])
            self._unread.note_match(self._passed_over)
        return NamedValue(number)

    def _of_name(self, named: NamedMetric, text: str, epoch: float | None, bar: ProgressBar | None) -> NamedValue:
        value = self._named_value(named, text, epoch)
        has_epochs = self._epochs.completed is not None
        if value.number is not None and self._announces_best:
            value = replace(value, is_record=True)
        self._announces_best = _BEST_FOLLOWS.search(text) is not None
        if not named.says_data:
            doubt = self._data_doubt(named, text, value, bar)
            if doubt:
                return NamedValue(doubt=doubt, is_of_other_data=True)
        if value.is_record and has_epochs in self._evaluated:
            return NamedValue(doubt=EARLIER)
        if value.number is not None and not value.is_record and (bar is None or bar.is_full):
            self._evaluated.add(has_epochs)
        return value

    def _named_value(self, named: NamedMetric, text: str, epoch: float | None) -> NamedValue:
        """The value of a line by itself."""
        value = named.value(text)
        # A line before any epoch, such as "initial accuracy: 0.1", does not show how evaluations are written.
        is_line = self._epochs.completed is not None and progress_bar_of(text) is None
        self._has_separator |= value.number is not None and is_line
        # Beside lines with a separator, one without is hardly another evaluation.
        may_be_column = value == NamedValue() and not self._has_separator
        if may_be_column and (epoch is not None or named.is_summary(text) or self._is_step(named, text)):
            return named.column(text)
        return value

    def _data_doubt(self, named: NamedMetric, text: str, value: NamedValue, bar: ProgressBar | None) -> str:
        """Why a value is perhaps of the training data, by the lines before it; empty if it is not."""
        has_epochs = self._epochs.completed is not None
        known = self._of_evaluation.get(has_epochs, "")
        if value.is_of_evaluation or named.evaluations_in(text):
            self._bars.drop_unnamed()
            if not known and (bar is None or bar.is_full):
                self._of_evaluation[has_epochs] = text.strip()[:MAX_QUOTED_CHARACTERS]
            # Evaluations alternate with other values. The result of the test data at the end does not.
            if self._has_refused and self._first is not None and not self._first.is_named:
                counted = self._first.line.strip()[:MAX_QUOTED_CHARACTERS]
                self._counted_in_doubt = self._counted_in_doubt or COUNTED_BEFORE.format(counted, known)
            return ""
        if value.number is None:
            return ""
        if self._headings.training:
            return UNDER_HEADING.format(self._headings.training[:MAX_QUOTED_CHARACTERS])
        self._has_refused |= bool(known)
        return BESIDE_EVALUATION.format(known) if known else ""

    def _is_step(self, named: NamedMetric, text: str) -> bool:
        """Whether a line of an output without epochs is of a step, and the metric's name says of what data it is.

        Another name may be that of the training's loss, which is written at many steps.
        """
        return named.names_evaluation and self._epochs.completed is None and self._step.search(text) is not None

    def _note_unread(
        self, named: NamedMetric, text: str, epoch: float | None, value: NamedValue, bar: ProgressBar | None
    ) -> None:
        if epoch is not None:
            self._unread.note_epoch(epoch)
        if self._unread.note_table(text):
            if self._passed_over is not None:
                self._passed_over = UnreadLine(text, cause=AT_TABLE_HEAD.format(self._name))
            return
        if not named.is_named(text):
            self._unread.note_other(text)
        if not named.is_named(text) or not self._unread.quotes_named:
            return
        unread = value if value != NamedValue() else self._why_unread(named, text, has_epoch=epoch is not None)
        may_be_over_epochs = self._epochs.completed is None and step_count_of(text) is None
        self._unread.note_named(UnreadLine(text, unread, bar, may_be_over_epochs=may_be_over_epochs))

    def _why_unread(self, named: NamedMetric, text: str, *, has_epoch: bool) -> NamedValue:
        """Why a line that names the metric has no value; the name of an evaluation, if that alone would make it one."""

        def is_read_as(name: str) -> bool:
            other = _named(name, named.is_fraction, named.is_rate_in_percent)
            may_be_column = has_epoch or named.is_summary(text) or self._is_step(other, text)
            return other.value(text).number is not None or (may_be_column and other.column(text).number is not None)

        names = tuple(filter(is_read_as, named.evaluations_in(text)))
        return NamedValue(other_names=names) if names else named.why_unread(text)


@lru_cache(maxsize=16)
def _named(name: str, is_fraction: bool, is_rate_in_percent: bool) -> NamedMetric:
    return NamedMetric(name, is_fraction=is_fraction, is_rate_in_percent=is_rate_in_percent)


class _BarEvaluations:
    """Which evaluations of the bars that a library draws count.

    A full bar is drawn again, with further metrics: Lightning's first full bar of an epoch has the metric of the epoch
    before, Keras's those of the training data alone. So the last full bar of an epoch counts, once the epoch has ended.
    """

    def __init__(self) -> None:
        self._held: Evaluation | None = None
        self._is_past = False

    def hold(self, evaluation: Evaluation | None, *, is_past: bool = False) -> None:
        """Hold an evaluation instead of the one before it: until its epoch has ended or, if past, the next line."""
        self._held, self._is_past = evaluation, is_past

    def drop_unnamed(self) -> None:
        """Drop an evaluation that a bar of the training data shows to be of that data, too."""
        if self._held is not None and not self._held.is_named:
            self._held = None

    def ended(self, epoch: float | None, bar: ProgressBar | None, *, is_of_training: bool) -> Evaluation | None:
        """The evaluation whose epoch has ended by the next line, which is held no more; None if there is none."""
        held = self._held
        # Without epochs, another bar shows that the one before it has ended.
        has_begun = epoch is None and bar is not None and bar.is_drawn and (not bar.is_full or is_of_training)
        if held is None or not (self._is_past or has_begun or epoch != held.epoch):
            return None
        return self.at_end()

    def at_end(self) -> Evaluation | None:
        """The evaluation that is held, once the output has ended."""
        held, self._held = self._held, None
        return held


def pattern_problem(reporting: Reporting) -> str | None:
    """Why the pattern cannot be used; None if it can, or if there is none."""
    try:
        if reporting.pattern is not None:
            compiled_pattern(reporting.pattern)
    except PatternError as error:
        return str(error)
    return None


def compiled_pattern(pattern: str) -> Any:
    """The pattern as a regular expression.

    Raises:
        PatternError: It is no regular expression of RE2, or has no group `metric`.
    """
    compiled = _compiled(pattern)
    if METRIC not in compiled.groupindex:
        raise PatternError(r"found no group named metric, expected one, such as 'accuracy (?P<metric>\S+)'")
    return compiled


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0] if error.args else error
        cause = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        raise PatternError(f"found {quoted(pattern)}, expected a regular expression of RE2: {cause}") from error


def number_in(text: str | None) -> float | None:
    """The number in a text; None if it is none."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
