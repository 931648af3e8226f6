"""What to tell the user of a training of whose output no line has counted, though some name the metric."""

from __future__ import annotations

from wattloop_operator.domain.named_metric import NamedValue
from wattloop_operator.domain.progress_bar import ProgressBar

# So many epochs begin before an output is said to have no line that counts; some evaluate only every few.
UNREAD_EPOCHS = 3
UNREAD_MATCHES = 3
MAX_QUOTED_CHARACTERS = 200
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
        self._is_bar = False
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

    def note_named(self, line: str, value: NamedValue, bar_over_epochs: ProgressBar | None = None) -> None:
        """Note a line that names the metric, while `quotes_named`.

        Args:
            line: The line.
            value: What it says of the metric.
            bar_over_epochs: The line's progress bar if the output has no epochs.
        """
        self._quote(line)
        self._value = value
        self._is_bar = bar_over_epochs is not None and bar_over_epochs.is_half

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
        if self._value.is_certain or self._matches >= UNREAD_MATCHES or self._is_bar:
            return f"no line has counted; {self._why_unread}"
        if self.quotes_named or not self._line:
            return ""
        return f"no line has counted in {UNREAD_EPOCHS} epochs; {self._why_unread}"

    @property
    def notice_at_end(self) -> str:
        """Why the latest line that names the metric or matches the pattern has not counted; empty if there is none."""
        return self._why_unread if self._line else ""

    @property
    def _why_unread(self) -> str:
        if self._matches:
            return (
                f"spec.reporting.pattern matches the line {self._line!r}, whose group metric is "
                f"{self._unread_group!r}, which is no number: let the group have the number alone"
            )
        if self._is_bar:
            return (
                f"the line {self._line!r} is a progress bar, which counts when it is full: "
                f"if it is a bar over epochs, print a line {LINE_REMEDY.format(metric=self._name)}"
            )
        if self._value.doubt:
            return f"the line {self._line!r} has {self._name} {self._value.doubt}"
        return f"the line {self._line!r} names {self._name}: print one {LINE_REMEDY.format(metric=self._name)}"
