"""The metric and the epochs in the lines that a training writes.

A pattern is a regular expression of RE2, whose time is linear in the length of the line. Lines and patterns are
bounded in length, and the processor time of both together in `bounded_output`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import re2

from wattloop.wire.training_messages import MAX_NUMBER
from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting

# The rest of a longer line is not searched.
MAX_LINE_BYTES = 16 * 1024
PATTERN_MEMORY_BYTES = 1024 * 1024
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
