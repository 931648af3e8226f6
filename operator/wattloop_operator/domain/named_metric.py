"""Finds the number that a line gives a metric by its name.

A script often writes one name for the training data and for the evaluation: ``train Acc: 0.99`` and then
``val Acc: 0.71``, or both in one line. Only the evaluation counts, since a target that the training data reaches is
not reached. What a line says of the training data, and a value whose meaning is not known, is therefore left out, with
the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import re2

from wattloop_operator.api.objective import ERROR_RATE_PATTERN, SHARE_PATTERN, Direction, Target
from wattloop_operator.domain.progress_bar import is_of_step, step_count_of
from wattloop_operator.domain.training_data import (
    EVALUATION,
    LOG_PREFIX,
    is_of_evaluation,
    is_of_training_data,
    names_data,
    names_evaluation,
)

IN_PERCENT = "in percent where the threshold is a fraction: write the threshold in percent, such as '90' for '0.9'"
AS_FRACTION = "perhaps as a fraction where the threshold is in percent: write the threshold as what is printed"
# Above 1 by more than a mean of rounded shares.
MAX_SHARE = 1.01
MAX_PERCENT = 100.0


def is_fraction(target: Target) -> bool:
    """Whether a target is met by a value from 0 to 1 and any larger one."""
    return target.direction is Direction.MAXIMIZE and 0 < float(target.threshold) <= 1


def is_share(metric: str) -> bool:
    """Whether a metric's name says that it is a share of what was evaluated.

    Example:
        >>> [is_share(name) for name in ("val_acc", "Top5", "eval_rougeL", "exact_match", "mAP50-95", "reward")]
        [True, True, True, True, True, False]
    """
    return re2.search(SHARE_PATTERN, metric) is not None


def may_be_percent(value: float) -> bool:
    """Whether a share of this value can only be in percent.

    Example:
        >>> [may_be_percent(value) for value in (0.85, 1.0, 85.0, 850.0)]
        [False, False, True, False]
    """
    return MAX_SHARE < value <= MAX_PERCENT


def is_rate_in_percent(target: Target) -> bool:
    """Whether the target of an error rate is in percent, and so met by any fraction.

    Example:
        >>> fields = {"metric": "val_wer", "direction": "Minimize"}
        >>> [is_rate_in_percent(Target.model_validate(fields | {"threshold": each})) for each in ("10", "0.1")]
        [True, False]
    """
    is_rate = target.direction is Direction.MINIMIZE and re2.search(ERROR_RATE_PATTERN, target.metric) is not None
    return is_rate and 1 < float(target.threshold) <= MAX_PERCENT


def may_be_fraction(value: float) -> bool:
    """Whether an error rate of this value may be a fraction: as a percentage it is small.

    Example:
        >>> [may_be_fraction(value) for value in (0.95, 0.0, 12.1)]
        [True, False, False]
    """
    return 0 < value <= 1


NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity|infinity)"
# A name, not part of a longer one, in quotes or not; a separator; a number, in quotes or not; what may follow it.
NAMED_VALUE = r"""(?:^|[^A-Za-z0-9_./-])["']?({name})["']?{separator}["']?(?P<{group}>{number})(?:{end})"""
# 9825/10000 is no value: whether it means 9825 or 0.9825 is not known. Nor is the beginning of 1,234.56, 1 234.56,
# 1'234.56, 0,91, 0:10:00 and 0.91-0.95.
_VALUE_END = (
    r"\s*$|\s+(?:[^/\s0-9.+-]|[.+-](?:[^0-9]|$))|[^A-Za-z0-9_./\s,':·٫٬–-]|[,':–-](?:[^0-9]|$)|\s*/\s*(?:$|[^0-9.\s])"
    r"|\.(?:$|\s)"
)
# The scalars of NumPy, PyTorch, JAX, TensorFlow and Python, as they are printed in a tuple or a dict.
_SCALARS = re2.compile(
    rf"\b(?:(?:np|numpy|jnp)\.)?(?:b?float|u?int)[0-9]{{1,3}}\(({NUMBER})\)"
    rf"|\b(?:torch\.)?tensor\(\s*({NUMBER})(?:,\s*[a-z_]+=[^,()=]*)*\)"
    rf"|\b(?:Device)?[Aa]rray\(\s*({NUMBER})(?:,\s*[a-z_]+=[^,()=]*)*\)"
    rf"|\b(?:tf\.)?Tensor\(({NUMBER}), shape=\(\), dtype=\w+\)"
    rf"|<tf\.Tensor: shape=\(\), dtype=\w+, numpy=({NUMBER})>"
    rf"|\bDecimal\('({NUMBER})'\)"
)
_SEPARATOR, _SPACE = r"\s*[=:]\s*", r"\s+"
# "epoch 3 | accuracy 0.9" and "step 250: train loss 1.9, val loss 2.1", but not "training until accuracy 0.9".
_COLUMN = r"(?:^|[|,;:)\]-])\s*"
# "epoch 3 loss 0.2 accuracy 0.9", as print("epoch", epoch, "loss", loss, …) writes it, but not "loaded epoch 3 accuracy
# 0.9", which is no evaluation, and not "epoch 3: 45% accuracy 0.4". A line of a step has the metric of some batches.
_EPOCH_FIRST = r"(?i:(?:^|[|\]])\s*|[A-Za-z]:)(?i:epoch)[\s=:#\[]*[0-9]+(?:\s*/\s*[0-9]+)?\]?:?"
# " * Acc@1 71.0 Acc@5 90.1" of PyTorch's example for ImageNet, "Test:  Acc@1 71.0", "DEV : loss 0.3".
_SUMMARY_FIRST = rf"{LOG_PREFIX}(?:\*|(?i:{EVALUATION})\s*[:|-])"
_ALTERNATING = rf"(?:{_EPOCH_FIRST}|{_SUMMARY_FIRST})(?:,?\s+[A-Za-z][A-Za-z0-9_./@-]*\s+(?:{NUMBER}))*,?\s*"
_SUMMARY = re2.compile(_SUMMARY_FIRST)
_OF_STEP = re.compile(r"(?i)\b(?:steps?|batch|batches|iters?|iterations?)\b")
# What no number may be followed by: "0.31m", "81/100", "1,234.56", "0,91".
_FOLLOWED = r"\s*(?P<rest>/\s*[0-9]\S{0,19})|(?P<unit>[A-Za-z_]\S{0,19}|[,':·٫٬–-][0-9]\S{0,19}|\s+[-+.]?[0-9]\S{0,19})"
# The value of the latest batch and the average, or a mean and its deviation: "0.41 (1.80)", "78.1% (71.1%)".
_IN_BRACKETS = re.compile(
    rf"\s*[(\[]\s*(?:(?:avg|average|mean)\.?\s*[:=]?\s*)?({NUMBER})\s*[)\]]"
    rf"|\s*%\s*[(\[]\s*(?:(?:avg|average|mean)\.?\s*[:=]?\s*)?({NUMBER})\s*%\s*[)\]]"
)
# "[0.91]", "tensor([0.91, 0.93])", "{'top1': 0.91}" after the name.
_BRACKETED = r"[\"']?\s*[=:]?\s*([A-Za-z_.]{0,20}[\[({][^\])}]{0,40}[0-9][^\])}]{0,20}[\])}]?)"
# Accuracy, val_accuracy and eval-accuracy before a number.
_OTHER_NAME = rf"(?i)([A-Za-z_][A-Za-z0-9_./-]*[ _./-]{{name}}|{{name}})[\"']?\s*[=:]?\s*[\"']?(?:{NUMBER})"
# "0.85 -> 0.91", of which one is an earlier value.
_CHANGE = re.compile(r"\s*(?:->|=>|→)\s*[-+.]?[0-9]\S{0,19}")
# Several names before several numbers: "loss, accuracy: 0.3, 0.9".
_NAMES_BEFORE = re.compile(r"[A-Za-z_]\s{0,3}(?:,|&|and)\s{0,3}$")
_NUMBERS_AFTER = re.compile(r"\s*(?:[,&]|and)?\s*[-+.]?[0-9]")
# The name and a number: accuracy, Accuracy, val_accuracy, but not accuracyA or inaccuracy.
_NAME_AND_NUMBER = r"(?i)(?:^|[^A-Za-z]){name}(?:[^A-Za-z].*)?(?:[0-9]|\b(?:nan|inf|infinity)\b)"
# The name of an evaluation of the metric: val_accuracy, "Val accuracy", eval/accuracy.
_EVALUATION_OF = r"(?i)(?:^|[^A-Za-z0-9_./-])((?:{evaluation})[ _/-]{name})[\"']?\s*[=:]"
_METRIC = "metric"
# RE2 gives the positions of groups by their numbers.
_NAME_GROUP, _NUMBER_GROUP = 1, 2
# More values in a line are not looked at, which bounds the time for a line that a tenant wrote.
_MAX_VALUES = 16
_MAX_WORDS_CHARACTERS = 100
_WORDS_BEFORE = re.compile(r"(?:([A-Za-z]+)\s+)?([A-Za-z]+(?:-?[A-Za-z0-9]+)?|[\w-]+'s)\s+$")
# "class 0 accuracy", "task A - accuracy": of a part of the data.
_OF_PART = re.compile(r"(?i)\b((?:class|label|category|task|head|client|group)[\s_#:=]{0,3}[\w.]{1,40})[\s:|-]{1,4}$")
# What is aimed at, and not measured.
_AIMS = {"target", "goal", "desired", "required", "threshold", "expected", "chance"}
# An earlier evaluation, as in "best val accuracy".
_RECORDS = {"best", "highest", "lowest", "max", "min", "previous", "last"}
# "best metric, acc: 0.9", "best model so far: acc 0.9".
_OF_BEST = re.compile(
    r"(?i)\b(?:best|highest|lowest)\s(?:metrics?|models?|results?|scores?|epochs?|checkpoints?|so\sfar)\b[^=|;0-9]{0,30}$"
)
_IS_EVALUATION = re.compile(rf"(?i)(?:{EVALUATION})")
_ALONE = "print the number alone, or read it with spec.reporting.pattern"
_STEP_REMEDY = (
    "which counts only if the line names the data of an evaluation: print 'val' before it, or read it with "
    "spec.reporting.pattern"
)
_TRAINING_REMEDY = (
    "print the one of the evaluation, name it in spec.objective.target.metric, "
    "or read this one with spec.reporting.pattern"
)
_PERCENT = re.compile(r"\s*(?:%|percent\b|pct\b)")


@dataclass(frozen=True)
class NamedValue:
    """What a line says of a metric.

    Attributes:
        number: The number that counts, as written; None if there is none.
        doubt: Why a number after the name does not count, and what to do; empty if there is no such number.
        other_names: The names under which the line has such a number, as XGBoost's validation_0 and validation_1.
        is_certain: Whether the doubt holds for every line of this form; else another one may have the evaluation.
        is_of_other_data: Whether the doubt is of what data the number is.
        is_record: Whether the number is said to be that of an earlier evaluation, such as the best one.
        is_of_evaluation: Whether the line or the metric's name says that the number is of an evaluation.
    """

    number: str | None = None
    doubt: str = ""
    other_names: tuple[str, ...] = ()
    is_certain: bool = False
    is_of_other_data: bool = False
    is_record: bool = False
    is_of_evaluation: bool = False


class NamedMetric:
    """A metric that is found by its name.

    Args:
        name: The name in the output; of other data than the training's, unless the name says so.
        is_fraction: Whether the target is met by a value from 0 to 1 and any larger one.
        is_rate_in_percent: Whether the metric is an error rate whose target is in percent.

    Attributes:
        is_fraction, is_rate_in_percent: As given.
        says_data: Whether the name says of what data the metric is.
        names_evaluation: Whether the name says that the metric is of an evaluation.

    Example:
        >>> accuracy = NamedMetric("accuracy", is_fraction=True)
        >>> accuracy.value("train accuracy: 0.99, val accuracy: 0.71").number
        '0.71'
        >>> accuracy.value("train loss: 0.1 accuracy: 0.99").number is None
        True
        >>> accuracy.value("accuracy: 71%") == accuracy.value("accuracy: 71")
        True
        >>> accuracy.value("accuracy: 71%").doubt
        "in percent where the threshold is a fraction: write the threshold in percent, such as '90' for '0.9'"
    """

    def __init__(self, name: str, *, is_fraction: bool, is_rate_in_percent: bool = False) -> None:
        self._name = name
        self.is_fraction, self.is_rate_in_percent = is_fraction, is_rate_in_percent
        self._is_share = is_fraction and is_share(name)
        self.says_data, self.names_evaluation = names_data(name), names_evaluation(name)
        # As it is, and as JSON may write it.
        forms = dict.fromkeys((name, json.dumps(name)[1:-1]))
        escaped = f"(?:{'|'.join(map(re2.escape, forms))})"
        self._after_separator = _compiled(escaped, _SEPARATOR)
        self._after_space = _compiled(escaped, _SPACE, before=_COLUMN)
        self._alternating = _compiled(escaped, _SPACE, before=_ALTERNATING)
        begin = rf"(?:^|[^A-Za-z0-9_./-])[\"']?{escaped}"
        self._bracketed = re2.compile(begin + _BRACKETED)
        self._percent = re2.compile(rf"{begin}\s+(?:{NUMBER})\s*(?:%|percent\b|pct\b)")
        self._spaced = re2.compile(rf"{begin}\s+(?:{NUMBER})(?:\s|$|[,;|)])")
        self._cell = re2.compile(rf"{begin}\s*[|│┃]\s*(?:{NUMBER})")
        self._other_names = re2.compile(_OTHER_NAME.format(name=escaped))
        self._followed = _compiled(escaped, rf"(?:{_SEPARATOR}|{_SPACE})", end=_FOLLOWED)
        self._named = re2.compile(_NAME_AND_NUMBER.format(name=escaped))
        self._evaluation = re2.compile(_EVALUATION_OF.format(evaluation=EVALUATION, name=escaped))

    def value(self, text: str) -> NamedValue:
        """The value after a separator, such as ``accuracy=0.9``."""
        return self._value(self._after_separator, text)

    def column(self, text: str) -> NamedValue:
        """The value in a column, such as ``| accuracy 0.9``, or in a line of names and numbers after an epoch."""
        found = self._value(self._after_space, text)
        if found != NamedValue() or _OF_STEP.search(text):
            return found
        return self._value(self._alternating, text)

    @staticmethod
    def is_summary(text: str) -> bool:
        """Whether a line begins as the summary of an evaluation, so that `column` may read it without an epoch.

        Example:
            >>> [NamedMetric.is_summary(text) for text in (" *   Acc@1 71.0 Acc@5 90.1", "INFO Test: loss 1", "loss 1")]
            [True, True, False]
        """
        return _SUMMARY.search(text) is not None

    def is_named(self, text: str) -> bool:
        """Whether a line has the name and a number, in whatever form."""
        return self._named.search(text) is not None

    def why_unread(self, text: str) -> NamedValue:
        """Why a line that names the metric has no value that `value` or `column` finds.

        Example:
            >>> rmse = NamedMetric("rmse", is_fraction=False)
            >>> rmse.why_unread("[3/30] rmse=0.31m").doubt
            "followed by 'm': print the number alone, or read it with spec.reporting.pattern"
            >>> rmse.why_unread("val_rmse: 0.31").other_names
            ('val_rmse',)
        """
        text = with_plain_scalars(text)
        found = self._followed.search(text)
        if found is not None:
            rest = (found.group("rest") or found.group("unit")).strip()
            return NamedValue(doubt=f"followed by {rest!r}: {_ALONE}")
        if self.is_fraction and self._percent.search(text) is not None:
            return NamedValue(doubt=IN_PERCENT, is_certain=True)
        bracketed, place = self._bracketed.search(text), ""
        if bracketed is not None:
            place = f"in brackets, {bracketed.group(1)!r}"
        elif self._spaced.search(text) is not None:
            place = f"before a space, without '=' as in {self._name}=0.5"
        elif self._cell.search(text) is not None:
            place = "in the cells of a table"
        if place:
            return NamedValue(doubt=f"{place}: {_ALONE}")
        others = self._others(text)
        evaluations = [name for name in others if names_evaluation(name) or not names_data(name)]
        if others and not evaluations:
            return NamedValue(doubt=f"of the training data, {others[0]!r}: {_TRAINING_REMEDY}", is_of_other_data=True)
        return NamedValue(other_names=tuple(filter(names_evaluation, evaluations)) or tuple(evaluations[:1]))

    def evaluations_in(self, text: str) -> tuple[str, ...]:
        """The names of evaluations of the metric that a line has, with a number.

        Example:
            >>> NamedMetric("ppl", is_fraction=False).evaluations_in("| end of epoch 1 | valid loss 6.5 | valid ppl 65")
            ('valid ppl',)
        """
        if self.says_data:
            return ()
        return tuple(filter(names_evaluation, self._others(with_plain_scalars(text))))

    def _others(self, text: str) -> list[str]:
        """The longer names before a number that end with the metric's name, and those in another case."""
        others = (found.group(1) for found in islice(self._other_names.finditer(text), _MAX_VALUES))
        return [name for name in dict.fromkeys(others) if name != self._name]

    def _value(self, compiled: Any, text: str) -> NamedValue:
        text = with_plain_scalars(text)
        found = compiled.search(text)
        if found is None:
            return NamedValue()
        by_word = self._not_of_training(islice(_and_later(compiled, found, text), _MAX_VALUES), text)
        evaluation = None if self.says_data else self._evaluation.search(text)
        if evaluation is not None:
            # What has no such word beside it is then of the training data: "accuracy: 0.99 val_accuracy: 0.71".
            by_word = {word: match for word, match in by_word.items() if _IS_EVALUATION.fullmatch(word)}
        aim = next((word for word in by_word if word in _AIMS), "")
        by_word = {word: match for word, match in by_word.items() if word not in _AIMS}
        if aim and not by_word:
            return NamedValue(doubt=f"as {aim} {self._name}, which is not measured: {_ALONE}", is_of_other_data=True)
        if not by_word:
            name = "" if evaluation is None else f", beside {evaluation.group(1)}"
            return NamedValue(doubt=f"of the training data{name}: {_TRAINING_REMEDY}", is_of_other_data=True)
        first = next(iter(by_word))
        if "" not in by_word and len(by_word) > 1:
            remedy = f"set spec.objective.target.metric to the whole name of one, such as '{first} {self._name}'"
            return NamedValue(doubt=f"of {' and of '.join(by_word)}: {remedy}", is_of_other_data=True)
        return self._counted(by_word.get("") or by_word[first], text)

    def _not_of_training(self, matches: Iterable[Any], text: str) -> dict[str, Any]:
        """The first match after each word; of earlier evaluations only if there are no others."""
        found: dict[str, Any] = {}
        records: dict[str, Any] = {}
        for match in matches:
            before, after = text[: match.start(_NAME_GROUP)], text[match.end(_NUMBER_GROUP) :]
            if self.says_data or not is_of_training_data(before, after):
                words = _words_before(before)
                (found if _RECORDS.isdisjoint(words) else records).setdefault(words[-1], match)
        return found or records

    def _counted(self, match: Any, text: str) -> NamedValue:
        before, after = text[: match.start(_NAME_GROUP)], text[match.end(_NUMBER_GROUP) :]
        scale = self._other_scale(float(match.group(_NUMBER_GROUP)), has_sign=_PERCENT.match(after) is not None)
        if scale:
            return NamedValue(doubt=scale, is_certain=True)
        of_evaluation = self.names_evaluation or is_of_evaluation(before, after)
        other_data = self._other_data(text, before, of_evaluation=of_evaluation)
        if other_data:
            return NamedValue(doubt=other_data, is_of_other_data=True)
        if _NAMES_BEFORE.search(before[-_MAX_WORDS_CHARACTERS:]) and _NUMBERS_AFTER.match(after):
            return NamedValue(doubt=f"as one of several names before several numbers: {_ALONE}")
        is_record = not _RECORDS.isdisjoint(_words_before(before)) or _OF_BEST.search(before) is not None
        bracket = _IN_BRACKETS.match(after)
        other = bracket or _CHANGE.match(after)
        if other is None:
            return NamedValue(match.group(_NUMBER_GROUP), is_record=is_record, is_of_evaluation=of_evaluation)
        # Beside a count of steps it is the average of all of them; else it may be a deviation.
        if bracket is not None and step_count_of(text) is not None:
            average = bracket.group(1) or bracket.group(2)
            return NamedValue(average, is_record=is_record, is_of_evaluation=of_evaluation)
        return NamedValue(doubt=f"followed by {other.group().strip()!r}, which may be an average or newer: {_ALONE}")

    def _other_scale(self, number: float, *, has_sign: bool) -> str:
        """Why a number is on another scale than the threshold; empty if it is not."""
        if (self._is_share and may_be_percent(number)) or (self.is_fraction and has_sign):
            return IN_PERCENT
        return AS_FRACTION if self.is_rate_in_percent and may_be_fraction(number) and not has_sign else ""

    @staticmethod
    def _other_data(text: str, before: str, *, of_evaluation: bool) -> str:
        """Why a number is of other data than those of a whole evaluation; empty if it is not."""
        part = _OF_PART.search(before[-_MAX_WORDS_CHARACTERS:])
        if part is not None:
            return f"of {part.group(1)!r} alone: {_ALONE}"
        return f"of a step or a batch, {_STEP_REMEDY}" if not of_evaluation and is_of_step(text, before) else ""


def with_plain_scalars(text: str) -> str:
    """A text in which the numbers stand for the scalars of NumPy, PyTorch and the like.

    Example:
        >>> with_plain_scalars("{'acc': np.float64(0.91), 'loss': tensor(0.3, device='cuda:0')}")
        "{'acc': 0.91, 'loss': 0.3}"
    """
    if "(" not in text and "numpy=" not in text:
        return text
    return str(_SCALARS.sub(lambda found: next(filter(None, found.groups()), ""), text))


def _compiled(name: str, separator: str, before: str = "", end: str = _VALUE_END) -> Any:
    pattern = NAMED_VALUE.format(name=name, group=_METRIC, separator=separator, number=NUMBER, end=end)
    return re2.compile(before + pattern)


def _and_later(compiled: Any, first: Any, text: str) -> Iterator[Any]:
    """A match and those after it; what ends a value may begin the next one's name."""
    found = first
    while found is not None:
        yield found
        found = compiled.search(text, found.end(_NUMBER_GROUP))


def _words_before(text: str) -> tuple[str, ...]:
    """The two words directly before a name, in lower case; empty where there is none."""
    # Only the end, since a search from each position to the end would take long.
    found = _WORDS_BEFORE.search(text[-_MAX_WORDS_CHARACTERS:])
    return ("",) if found is None else tuple((word or "").lower() for word in found.groups())
