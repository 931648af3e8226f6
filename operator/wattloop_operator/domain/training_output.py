"""The metric and the epochs in the lines that a training writes.

A pattern is a regular expression of RE2, whose time is linear in the length of the line. Lines and patterns are
bounded in length. The time grows with the size of the pattern too: one with repetitions such as ``.{0,900}`` takes
0.2 s for a line of 16 KiB. The processor time of all lines is therefore charged to a budget, beyond which the output
is read with a delay. A user's pattern that spends a second in slow lines is used no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import re2

from wattloop.wire.training_messages import MAX_NUMBER
from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting

# The rest of a longer line is not searched.
MAX_LINE_BYTES = 16 * 1024
PATTERN_MEMORY_BYTES = 1024 * 1024
# Wattloop's own pattern takes 0.07 ms for the longest line, and 0.08 s for the 4,096 lines that are read a second.
MAX_LINE_SECONDS = 0.005
# Processor time of a second, and in reserve.
PROCESSOR_SHARE, PROCESSOR_RESERVE_SECONDS = 0.25, 1.0
SLOW_SHARE, SLOW_RESERVE_SECONDS = 0.05, 1.0
METRIC, EPOCH = "metric", "epoch"
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity|infinity)"
# A name, not part of a longer one, in quotes or not; a separator; a number, in quotes or not.
_NAMED_VALUE = (
    r"""(?:^|[^A-Za-z0-9_./-])["']?{name}["']?{separator}["']?(?P<{group}>{number})(?:$|[^A-Za-z0-9_.]|\.(?:$|\s))"""
)
_SEPARATOR = r"\s*[=:]\s*"
# Epoch 3, Epoch: 3, epoch=3, Epoch [3/10], in any case.
_EPOCH_NAME, _EPOCH_SEPARATOR = "(?i:epoch)", r"[\s=:#\[]*"


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of the metric in the output.

    Attributes:
        metric: Its value; NaN or infinite if the training diverged.
        epoch: Epochs completed at the evaluation; None if the output has none.
    """

    metric: float
    epoch: float | None


class OutputReader:
    """Reads the evaluations from the lines of one training, in their order.

    Args:
        reporting: The format of the output.
        target: The target, whose metric is read.

    Raises:
        PatternError: The pattern cannot be used.

    Example:
        >>> target = Target.model_validate({"metric": "accuracy", "threshold": "0.9"})
        >>> reader = OutputReader(Reporting.model_validate({"source": "Logs"}), target)
        >>> reader.read(b"epoch=3 loss=0.21 accuracy=0.91")
        Evaluation(metric=0.91, epoch=3.0)
        >>> reader.read(b"{'accuracy': 0.95, 'epoch': 4.0}")
        Evaluation(metric=0.95, epoch=4.0)
    """

    def __init__(self, reporting: Reporting, target: Target) -> None:
        if reporting.pattern is None:
            name = reporting.metric_name or target.metric
            self._metric = _compiled(_named_value(re2.escape(name), METRIC, _SEPARATOR))
            self._epoch = _compiled(_named_value(_EPOCH_NAME, EPOCH, _EPOCH_SEPARATOR))
        else:
            self._metric = self._epoch = compiled_pattern(reporting.pattern)
        self._uncounted_epochs = 1 - reporting.first_epoch
        self._latest_epoch: float | None = None

    def read(self, line: bytes) -> Evaluation | None:
        """Read the next line; None if it has no evaluation.

        An epoch that stands on an earlier line counts for the evaluations after it.
        """
        text = line[:MAX_LINE_BYTES].decode("utf-8", "replace")
        epoch = number_in(_group(self._epoch, text, EPOCH))
        if epoch is not None and math.isfinite(epoch):
            self._latest_epoch = min(max(epoch + self._uncounted_epochs, 0.0), MAX_NUMBER)
        metric = number_in(_group(self._metric, text, METRIC))
        if metric is None:
            return None
        return Evaluation(metric, self._latest_epoch)


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
        raise PatternError(f"found {pattern!r}, expected a regular expression of RE2: {cause}") from error


def _named_value(name: str, group: str, separator: str) -> str:
    return _NAMED_VALUE.format(name=name, group=group, separator=separator, number=_NUMBER)


def _group(compiled: Any, text: str, name: str) -> str | None:
    found = compiled.search(text) if name in compiled.groupindex else None
    return None if found is None else found.group(name)


def number_in(text: str | None) -> float | None:
    """The number in a text; None if it is none."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


class SlowPatternError(Exception):
    """A user's pattern takes too much processor time; the text says for what line, and what to do."""


class BoundedOutputReader:
    """An `OutputReader` whose processor time is bounded. For one thread.

    Args:
        reporting: The format of the output.
        target: The target, whose metric is read.
        monotonic: Monotonic seconds.
        processor_time: Seconds of processor time of the calling thread.

    Raises:
        PatternError: The pattern cannot be used.
    """

    def __init__(
        self,
        reporting: Reporting,
        target: Target,
        monotonic: Callable[[], float],
        processor_time: Callable[[], float],
    ) -> None:
        self._reader = OutputReader(reporting, target)
        self._pattern = reporting.pattern
        self._processor_time = processor_time
        self._all_lines = _Budget(PROCESSOR_SHARE, PROCESSOR_RESERVE_SECONDS, monotonic)
        self._slow_lines = _Budget(SLOW_SHARE, SLOW_RESERVE_SECONDS, monotonic)

    def read(self, line: bytes) -> Evaluation | None:
        """See `OutputReader.read`.

        Raises:
            SlowPatternError: The pattern has spent its time in slow lines; read no further one.
        """
        begin = self._processor_time()
        evaluation = self._reader.read(line)
        seconds = self._processor_time() - begin
        self._all_lines.spend(seconds)
        # A pause of the process, such as for its garbage, also counts, which the reserve allows for.
        if self._pattern is not None and seconds > MAX_LINE_SECONDS:
            self._slow_lines.spend(seconds)
            if self._slow_lines.debt_seconds > 0:
                raise SlowPatternError(
                    f"the pattern {self._pattern!r} takes {1000 * seconds:.0f} ms of processor time for a line of "
                    f"{min(len(line), MAX_LINE_BYTES)} bytes, so the output is searched no further; expected at most "
                    f"{1000 * MAX_LINE_SECONDS:.0f} ms: write spec.reporting.pattern with fewer repetitions"
                )
        return evaluation

    @property
    def wait_seconds(self) -> float:
        """How long to wait before the next line, so that the share of a processor is kept."""
        return self._all_lines.debt_seconds / PROCESSOR_SHARE


class _Budget:
    """Seconds to spend, of which a share of each second is added, up to a reserve."""

    def __init__(self, share: float, reserve_seconds: float, monotonic: Callable[[], float]) -> None:
        self._share = share
        self._reserve_seconds = self._left_seconds = reserve_seconds
        self._monotonic = monotonic
        self._counted_at = monotonic()

    def spend(self, seconds: float) -> None:
        self._count()
        self._left_seconds -= seconds

    @property
    def debt_seconds(self) -> float:
        self._count()
        return max(-self._left_seconds, 0.0)

    def _count(self) -> None:
        now = self._monotonic()
        added = (now - self._counted_at) * self._share
        self._left_seconds = min(self._left_seconds + added, self._reserve_seconds)
        self._counted_at = now
