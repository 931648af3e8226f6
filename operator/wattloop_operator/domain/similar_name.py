"""Finds the name in an output that is most similar to a metric's name which no line has: a slip of the pen."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import islice

from wattloop_operator.domain.named_metric import NUMBER
from wattloop_operator.domain.output_line import MAX_QUOTED_CHARACTERS
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

    Args:
        metric: The metric's name.

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
