"""The epoch in a line of a training's output.

It stands at the head of the line or in a field of its own. A number of an epoch in a sentence on the best model, of a
checkpoint or in printed arguments is not the epoch of an evaluation.
"""

from __future__ import annotations

import math
from typing import Any

import re2

from wattloop.wire.training_messages import MAX_NUMBER
from wattloop_operator.domain.named_metric import NAMED_VALUE, NUMBER
from wattloop_operator.domain.training_data import EVALUATION, LOG_PREFIX, TRAINING

EPOCH = "epoch"
# Epoch 3, Epoch: 3, epoch=3, Epoch [3/10], Epoch(val) [20][98/98], in any case.
# But not "Epoch: 20%", which is a bar over epochs.
_EPOCH = re2.compile(
    NAMED_VALUE.format(
        name=r"(?i:epoch)(?:\s*\([A-Za-z]+\))?",
        group=EPOCH,
        separator=r"[\s=:#\[]*",
        number=NUMBER,
        end=r"$|[^A-Za-z0-9_.,%]|,(?:$|[^0-9])|\.(?:$|\s)",
    )
)
# timm: "Train: 0 [1251/1251 (100%)]".
_OF_DATA = re2.compile(rf"{LOG_PREFIX}(?i:{TRAINING}|{EVALUATION}):?\s+(?P<{EPOCH}>[0-9]+)\s*\[\s*[0-9]+\s*/")
_NAME_GROUP, _EPOCH_GROUP = 1, 2
# Anywhere before the epoch: "best accuracy 0.9 at epoch 3", "loaded checkpoint of epoch 3", "training until epoch 3".
_OF_OTHER_MODEL = re2.compile(
    r"(?i)\b(?:best|highest|lowest|load(?:ed|ing)?|resum(?:e|ed|ing)|restor(?:e|ed|ing)|checkpoints?|sav(?:ed|ing)"
    r"|from|until|up to|early|stop(?:ped|ping)?)\b"
)
# Directly before it: "max epoch: 100".
_OF_OTHER_COUNT = re2.compile(
    r"(?i)\b(?:max|maximum|total|num|number of|last|previous|next|every|per|patience|warm-?up)[\s_-]+[\"']?$"
)
_ARGUMENTS = re2.compile(
    r"(?i)(?:^|[^A-Za-z])[A-Za-z_]*(?:namespace|config|configuration|cfg|args|arguments|hparams|params|parameters"
    r"|options|opt|settings|flags)[\"']?\s*(?:[:=]\s*)?[({\[]"
    r"|(?:^|[^A-Za-z])(?:namespace|config|configuration|cfg|args|arguments|hparams|hyper-?parameters|settings)\s*[:=]"
)
# Names of arguments beside an epoch, in a line without the metric, and a call: TrainerState(epoch=1.0, …).
_OTHER_ARGUMENTS = re2.compile(
    r"(?i)\b(?:batch[_-]?size|num[_-]?workers|workers|seed|optimi[sz]er|weight[_-]?decay|data[_-]?(?:dir|path|root)"
    r"|output[_-]?dir|dropout)[\"']?\s*[=:]"
)
_CALL = re2.compile(r"[A-Za-z_]\w*\((?:\w+=[^()]*)?$")
# What stands between the last separator and the epoch: "Fold 1 ", "End of ", "0.91 at ".
_DELIMITER = re2.compile(r"(?:[|\])}>:;,(\[{]|\s[-–—•·])\s*")
_STANDALONE_NUMBER = re2.compile(r"(?:^|\s)[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?%?(?:\s|$)")
_WORD_BEFORE = re2.compile(r"(?:^|\s)[A-Za-z'-]+\s*[\"']?$")
_ASSIGNED = re2.compile(r"(?i)\bepoch[\"']?\s*[=:]")
_MAX_WORDS_CHARACTERS = 100
# More epochs in a line are not looked at.
_MAX_EPOCHS_OF_LINE = 16
# So many times maxEpochs is no epoch, but a time in seconds or a step.
_FAR = 10


class PrintedEpochs:
    """The epochs of an output, in the order of its lines.

    Args:
        pattern: A user's pattern with a group for the epoch; None: an epoch is found by its name.
        max_epochs: The most epochs of the training.
        counts_from_0: Whether an earlier evaluation, of epoch 0, has shown that the first epoch is 0.

    Example:
        >>> epochs = PrintedEpochs(None, max_epochs=20)
        >>> [epochs.read(line, has_metric=True) for line in ("Epoch 2: accuracy=0.9", "Namespace(epoch=9)")]
        [2.0, None]
        >>> epochs.completed
        2.0
    """

    def __init__(self, pattern: Any, *, max_epochs: float, counts_from_0: bool = False) -> None:
        self._pattern = pattern
        self._max_epochs = max_epochs
        self._latest: float | None = None
        self._printed = self._zero = ""
        self._doubted: float | None = None
        self.counts_from_0 = counts_from_0

    @property
    def completed(self) -> float | None:
        """Epochs completed by the latest one that was printed; None before any."""
        if self._latest is None:
            return None
        return min(max(self._latest + self.counts_from_0, 0.0), MAX_NUMBER)

    def read(self, text: str, *, has_metric: bool) -> float | None:
        """The epoch of a line, as printed; None if it has none.

        Args:
            text: The text of the line.
            has_metric: Whether the line names the metric too.
        """
        if self._pattern is not None:
            found = self._pattern.search(text) if EPOCH in self._pattern.groupindex else None
            printed = None if found is None else found.group(EPOCH)
        else:
            printed = printed_epoch(text, has_metric=has_metric)
        try:
            epoch = math.nan if printed is None else float(printed)
        except ValueError:
            return None
        if printed is None or not math.isfinite(epoch):
            return None
        # No argument is written as 3.0.
        has_metric |= "." in printed
        if self._pattern is None and self._is_in_doubt(epoch, text, has_metric=has_metric):
            return None
        self._latest = epoch
        if self.counts_from_0 and self._zero == "0" and "." in printed:
            # Hugging Face's Trainer writes 0 before its training, then 0.5 and 1.0.
            self.counts_from_0 = False
        self._printed = printed
        return epoch

    def note_evaluation(self) -> None:
        """Note that an evaluation has the latest epoch: at epoch 0, one epoch has run."""
        if self._latest == 0:
            self.counts_from_0, self._zero = True, self._printed

    def _is_in_doubt(self, epoch: float, text: str, *, has_metric: bool) -> bool:
        """Whether a number may be another one than that of an epoch.

        The first one, without the metric, may be that of a configuration: "epoch: 10". Another one after it is not.
        """
        if epoch > _FAR * self._max_epochs:
            return True
        if self._latest is not None or has_metric:
            return False
        if epoch <= 1 or (epoch <= self._max_epochs and _ASSIGNED.search(text) is None):
            return False
        is_first = self._doubted in (None, epoch)
        self._doubted = epoch
        return is_first


def printed_epoch(text: str, *, has_metric: bool) -> str | None:
    """The number of the epoch in a line; None if there is none.

    Example:
        >>> [printed_epoch(text, has_metric=True) for text in ("val acc: 0.9 epoch: 3", "best acc: 0.9 at epoch 3")]
        ['3', None]
        >>> printed_epoch("Namespace(batch_size=32, epoch=100, lr=0.1)", has_metric=False) is None
        True
    """
    found = _EPOCH.search(text) if "epoch" in text.lower() else None
    for _ in range(_MAX_EPOCHS_OF_LINE):
        if found is None:
            break
        if _is_of_line(text[: found.start(_NAME_GROUP)], text, has_metric=has_metric):
            return str(found.group(_EPOCH_GROUP))
        found = _EPOCH.search(text, found.end(_EPOCH_GROUP))
    found = _OF_DATA.search(text)
    return None if found is None else str(found.group(EPOCH))


def _is_of_line(before: str, text: str, *, has_metric: bool) -> bool:
    """Whether an epoch stands at the head of a line or in a field of its own, by what stands before it."""
    if any(form.search(before) is not None for form in (_OF_OTHER_MODEL, _OF_OTHER_COUNT, _ARGUMENTS)):
        return False
    if not has_metric and (_CALL.search(before) is not None or _OTHER_ARGUMENTS.search(text) is not None):
        return False
    before = before[-_MAX_WORDS_CHARACTERS:]
    if _WORD_BEFORE.search(before) is None:
        return True
    # "End of epoch 3", but not "accuracy 0.91 at epoch 3".
    start = 0
    while (delimiter := _DELIMITER.search(before, start)) is not None and delimiter.end() > start:
        start = delimiter.end()
    return _STANDALONE_NUMBER.search(before[start:]) is None
