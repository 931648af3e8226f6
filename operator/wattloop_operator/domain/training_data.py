"""Whether a line says of a value that it is of the training data.

The nearest word before the value that names a part of the data decides: ``train Loss: 0.4 Acc: 0.99``,
``{"mode": "train", "acc": 0.99}``, ``Training Results - Avg accuracy: 0.99``. Without one before it, a field such as
``phase=train`` after it does. In doubt a value is of the training data: what does not count is named to the user, and
what counts wrongly is a target that is not reached.
"""

from __future__ import annotations

import re

TRAINING = r"train(?:ing)?|trn"
EVALUATION = (
    r"val|vali|valid|validated?|validation|validating|test|tested|testing|eval|evaluated?|evaluation|evaluating|dev"
    r"|held-?out|holdout|inference"
)
# What logging, a launcher or a test writes before a message: times, names in brackets, levels.
LOG_PREFIX = (
    r"^(?:\s|\[[^\]]{0,80}\]:?\s|\([^)]{0,80}\)\s?:?\s|[0-9][0-9T:,./Z-]*\s|\b(?:INFO|DEBUG|WARNING)\b[\s:|-]+"
    r"|[A-Za-z_][\w.]*\s[|-]\s|[-|]\s)*"
)
# The levels of logging; a word next to one may be the name of a logger.
_LEVEL = r"DEBUG|INFO|WARNING|ERROR"
# Python's engine, for its look-around; each of these patterns needs time in proportion to the length of the line.
# A word of its own, or the beginning of a name that is no value's: val_loss, train_inner, but not train_loss, train.py
# or pre-training, nor what logging writes of a logger or a module of this name: INFO:train: and train:main:30.
_PHASE = re.compile(
    rf"(?i)(?<![\w./-])(?:"
    rf"(?P<training>(?:{TRAINING})(?:_(?:inner|step|epoch|batch)(?!\w|[\"']?\s*[=:]))?)"
    rf"(?!\w|/|:(?:\w+|<\w+>):\d+\s[-|]|[.-](?!set\b)\S|[\"']?\s*[=:]\s*[\"']?(?:(?:false|no)\b|0\s*(?:[,;}})\"']|$)))"
    rf"|(?:{EVALUATION})(?![A-Za-z0-9]|[.-]\S))"
)
_LOGGER_BEFORE = re.compile(rf"\b(?:{_LEVEL}):$")
_LEVEL_AFTER = re.compile(rf"\b(?:{_LEVEL})\b")
_LOGGER_CHARACTERS = 20
# The name of a function beside its line, behind a level, __main__ or a file: "INFO | __main__:train:42",
# "main.py:train:42", "[main.py:42 - train()]", "train() (main.py:42)".
_FUNCTION_BEFORE = re.compile(
    rf"(?:\b(?:{_LEVEL}|CRITICAL|SUCCESS|TRACE)\b[\s|:\[\]-]{{1,12}}[\w.]{{1,60}}|\b__main__|\b\w{{1,60}}\.py):$"
)
_LINE_AFTER = re.compile(r":\d+(?![\w.%/])")
_FILE_BEFORE = re.compile(r"\.py:\d{1,6}[\s:|-]{1,6}$")
_CALL_AFTER = re.compile(r"\(\)")
_FILE_AFTER = re.compile(r"(?:\(\))?[\s:|-]{0,4}[\[(]?\w+\.py:\d+")
_PREFIX_CHARACTERS = 90
# What directly follows makes a time, a number of samples or a sentence of the word.
_OTHER_VALUE = re.compile(r"(?i)\s+(?:time|samples|examples|took|finish(?:ed)?|done|ended|over|complete[d]?|until)\b")
_FIELD = re.compile(
    rf"(?i)\b(?:mode|phase|split|stage|subset|set|prefix)[\"']?\s*[=:]\s*[\"']?(?:{TRAINING})(?![\w./-])"
)
_AFTER_NUMBER = re.compile(rf"(?i)\s*%?\s*(?:[(\[]\s*(?:{TRAINING})\s*[)\]]|on\s+(?:the\s+)?(?:{TRAINING})\b)")
_EVALUATION_FIELD = re.compile(
    rf"(?i)\b(?:mode|phase|split|stage|subset|set|prefix)[\"']?\s*[=:]\s*[\"']?(?:{EVALUATION})(?![\w./-])"
)
_EVALUATION_AFTER = re.compile(rf"(?i)\s*%?\s*(?:[(\[]\s*(?:{EVALUATION})\s*[)\]]|on\s+(?:the\s+)?(?:{EVALUATION})\b)")
# TensorFlow's Estimator writes the results of an evaluation beside the step.
_ESTIMATOR = re.compile(r"\bSaving dict for global step \d+:")
# A line that says only of what data the next ones are: "Training...", "Epoch 1 - validation", "[train]".
_HEADING = re.compile(
    rf"(?i)^[\W_]*(?:epoch[\s:#\[]*[0-9]+(?:/[0-9]+)?[\W_]+)?(?:(?:start(?:ing)?|begin(?:ning)?|running|now)\s+)?"
    rf"(?:(?P<training>{TRAINING})|{EVALUATION})(?:[\s_-]+(?:phase|mode|step|loop|set|data|results?|metrics?|summary|stats))?"
    rf"(?:\s+(?:for\s+)?epoch[\s:#\[]*[0-9]+(?:/[0-9]+)?)?[\W_]*$"
)
_MAX_HEADING_CHARACTERS = 100
_NAMED_EVALUATION = re.compile(rf"(?i)(?<![a-z])(?:{EVALUATION})(?![a-z])")
_NAMED_DATA = re.compile(rf"(?i)(?<![a-z])(?:{TRAINING}|{EVALUATION})(?![a-z])")


def names_data(name: str) -> bool:
    """Whether a metric's name says of what data it is.

    Example:
        >>> [names_data(name) for name in ("val_acc", "train accuracy", "valid/loss", "accuracy", "contrast")]
        [True, True, True, False, False]
    """
    return _NAMED_DATA.search(name) is not None


def names_evaluation(name: str) -> bool:
    """Whether a metric's name says that it is of an evaluation.

    Example:
        >>> [names_evaluation(name) for name in ("val_acc", "train accuracy", "accuracy")]
        [True, False, False]
    """
    return _NAMED_EVALUATION.search(name) is not None


def is_of_evaluation(before: str, after: str) -> bool:
    """Whether a line says of a value that it is of an evaluation.

    Args:
        before: What stands in the line before the metric's name.
        after: What follows its number.

    Example:
        >>> [is_of_evaluation(before, "") for before in ("Test: [ 78/78]  ", "val_loss: 0.3 ", "step 100 ")]
        [True, True, False]
    """
    if _ESTIMATOR.search(before) is not None:
        return True
    if any(found.group("training") is None and not _is_loggers(before, found) for found in _PHASE.finditer(before)):
        return True
    return _EVALUATION_AFTER.match(after) is not None or _EVALUATION_FIELD.search(after) is not None


def is_of_training_data(before: str, after: str) -> bool:
    """Whether a value is of the training data.

    Args:
        before: What stands in the line before the metric's name.
        after: What follows its number.

    Example:
        >>> is_of_training_data("train Loss: 0.4 ", "")
        True
        >>> is_of_training_data("train Loss: 0.4 Acc: 0.99 val Loss: 0.9 ", "")
        False
        >>> is_of_training_data("Training finished, ", "")
        False
        >>> is_of_training_data("epoch=3 ", " phase=train")
        True
    """
    if _AFTER_NUMBER.match(after):
        return True
    latest = None
    for found in _PHASE.finditer(before):
        if not _is_loggers(before, found):
            latest = found
    if latest is None:
        return _FIELD.search(after) is not None
    return latest.group("training") is not None and _OTHER_VALUE.match(before, latest.end()) is None


def _is_loggers(before: str, found: re.Match[str]) -> bool:
    """Whether the word is the name of a logger or a function: ``INFO:train:``, ``train - INFO - ``."""
    if before.startswith(":", found.end()) and _LOGGER_BEFORE.search(before, max(found.start() - 10, 0), found.start()):
        return True
    start, end = max(found.start() - _PREFIX_CHARACTERS, 0), found.end()
    if _LINE_AFTER.match(before, end) and _FUNCTION_BEFORE.search(before, start, found.start()):
        return True
    if _FILE_AFTER.match(before, end) or (
        _CALL_AFTER.match(before, end) and _FILE_BEFORE.search(before, start, found.start())
    ):
        return True
    return _LEVEL_AFTER.search(before, found.end(), found.end() + _LOGGER_CHARACTERS) is not None


class PhaseHeadings:
    """The data of the lines below a heading, such as ``Training...`` or ``--- Validation ---``.

    A heading is of the epoch that was printed before it, or with it. Without epochs, ``Training...`` may stand before
    the whole training, and says nothing until another heading is that of an evaluation.

    Example:
        >>> headings = PhaseHeadings()
        >>> for line, has_epoch in (("Epoch 1", True), ("Training...", False), ("accuracy: 0.99", False)):
        ...     headings.note(line, has_epoch=has_epoch)
        >>> headings.training
        'Training...'
        >>> headings.note("Validating...", has_epoch=False)
        >>> headings.training
        ''

    Attributes:
        training: The heading of training data of the next line; empty if there is none.
    """

    def __init__(self) -> None:
        self.training = ""
        self._has_epochs = self._has_evaluation = False

    def note(self, text: str, *, has_epoch: bool) -> None:
        """Note a line, of which the next lines may be the contents."""
        self._has_epochs |= has_epoch
        found = _HEADING.search(text) if len(text) <= _MAX_HEADING_CHARACTERS else None
        if found is not None:
            is_training = found.group("training") is not None
            self._has_evaluation |= not is_training
            is_known = self._has_epochs or self._has_evaluation
            self.training = text.strip() if is_training and is_known else ""
        elif has_epoch:
            self.training = ""
