"""Tells whether a line is a progress bar, and how far it is.

A bar such as tqdm's shows the mean of the batches so far, or the evaluation of the epoch before, beside the number of
the epoch that has begun. Neither is an evaluation of this epoch. The full bar has what the script prints at its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import re2

_PREFIXES = "kMGTPE"
_COUNT = rf"[0-9]{{1,15}}(?:\.[0-9]+)?[{_PREFIXES}]?"
_FORMS = tuple(
    re2.compile(form)
    for form in (
        # tqdm and Lightning: "Epoch 3:  12%|#2   | 12/100 [00:01<00:07, acc=0.91]"; also 1.2k/10.0k.
        rf"\|\s*(?P<done>{_COUNT})/(?P<total>{_COUNT})\s*\[[0-9:]+<",
        # tqdm without a total, which is never known to be full: "12it [00:01, 12.1it/s, acc=0.91]", in any unit.
        rf"(?P<done>{_COUNT})\s?[A-Za-z]*\s\[[0-9]+:[0-9:]+,[^\]]*/",
        # Steps of an epoch: "Epoch [1/5], Step [100/600], loss: 0.9", "Epoch: [3]  [ 100/5005]  loss: 0.9".
        r"(?i)\b(?:step|batch|iter|iteration)[\s:]*\[\s*(?P<done>[0-9]{1,15})/(?P<total>[0-9]{1,15})\]",
        r"(?:Epoch:?\s*\[[0-9]+(?:/[0-9]+)?\]|^\s*Test:)\s*\[\s*(?P<done>[0-9]{1,15})/(?P<total>[0-9]{1,15})\]",
        # Keras: "12/100 [==>....] - ETA: 3s - accuracy: 0.91", and with another bar since its version 3.
        (
            "^(?:\x1b\\[1m|\\s|\x08)*(?P<done>[0-9]{1,15})/(?P<total>[0-9]{1,15})(?:\x1b\\[0m)?\\s*"
            "(?:\x1b\\[[0-9;]*m)*(?:\\[[=>.]|━)"
        ),
    )
)


@dataclass(frozen=True)
class ProgressBar:
    """How far a bar is.

    Attributes:
        done: The steps that are done, as the bar has them.
        total: All steps; None if the bar has none.
    """

    done: str
    total: str | None

    @property
    def is_full(self) -> bool:
        """Whether all steps are done."""
        return self.done == self.total

    @property
    def is_half(self) -> bool:
        """Whether half of the steps are done; never without a total."""
        return self.total is not None and 2 * _number(self.done) >= _number(self.total)


def _number(count: str) -> float:
    power = _PREFIXES.find(count[-1]) + 1
    return float(count[:-1] if power else count) * 1000.0**power


def progress_bar_of(line: str) -> ProgressBar | None:
    """The progress bar of a line; None if it has none.

    Args:
        line: A line of a training's output, its control sequences included.

    Example:
        >>> progress_bar_of("Epoch 3:  12%|#2        | 12/100 [00:01<00:07, 12.1it/s, acc=0.91]").is_full
        False
        >>> progress_bar_of("Epoch 3: 100%|##########| 100/100 [00:08<00:00, 12.0it/s, acc=0.88]").is_full
        True
        >>> progress_bar_of("epoch 3/10 accuracy=0.88") is None
        True
    """
    # Each form needs one of these; most lines have none, and thousands are read a second.
    if "[" not in line and "━" not in line:
        return None
    for form in _FORMS:
        found = form.search(line)
        if found is not None:
            return ProgressBar(found.group("done"), found.group("total") if "total" in form.groupindex else None)
    return None
