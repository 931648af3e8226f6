"""Tells whether a line is a progress bar, and how far it is.

A bar such as tqdm's shows the mean of the batches so far, or the evaluation of the epoch before, beside the number of
the epoch that has begun. Neither is an evaluation of this epoch. The full bar has what the script prints at its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import re2

from wattloop_operator.domain.training_data import EVALUATION, TRAINING

_PREFIXES = "kMGTPE"
COUNT = rf"[0-9]{{1,15}}(?:\.[0-9]+)?[{_PREFIXES}]?"
_NUMBER = "[0-9]{1,15}"
_BRACKET = rf"\[\s*(?P<done>{_NUMBER})\s*/\s*(?P<total>{_NUMBER})\b"
_STEP = (
    r"(?i:\b(?:(?:global|train|training)[ _])?(?:steps?|(?:mini-?)?batch|(?:mini-?)?batches|iters?|iterations?|itr))"
)
# "Epoch: [3]", "Epoch(val) [20]", "Epoch: 1", "Epoch [3/90]", before the step's bracket.
_EPOCH = r"\b(?i:epoch)(?:\s*\([A-Za-z]+\))?\s*[:=#]?\s*\[?\s*[0-9]+(?:\s*/\s*[0-9]+)?\]?\s*[:,|-]?\s*"
_DATA = rf"\b(?i:{TRAINING}|{EVALUATION})(?:\s*\([A-Za-z]+\))?\s*[:=-]?\s*(?:\[?[0-9]+\]?)?\s*:?\s*"
_STEP_FORMS = tuple(
    re2.compile(form)
    for form in (
        # "Epoch [1/5], Step [100/600], loss: 0.9", "Iter(val) [98/98]", "batch 100/600", "step 3 of 9".
        rf"{_STEP}(?:\([A-Za-z]+\))?[\s:=#]*\[?\s*(?P<done>{_NUMBER})\s*(?:/|of)\s*(?P<total>{_NUMBER})\b",
        # "Epoch: [3]  [ 100/5005]  loss: 0.9", "Epoch(val) [20][98/98]", "Epoch: 1 [640/60000 (1%)]".
        rf"{_EPOCH}{_BRACKET}",
        # fairseq: "epoch 003:    100 / 1500 loss=2.1".
        rf"\b(?i:epoch)\s+[0-9]+:\s+(?P<done>{_NUMBER})\s+/\s+(?P<total>{_NUMBER})\s",
        # "Test: [ 78/78]", "Train: 0 [1251/1251 (100%)]".
        rf"{_DATA}{_BRACKET}",
        # "loss: 2.3  [   64/60000]", "[100/600] eta: 3 s".
        rf"[0-9]\s+{_BRACKET}\s*\]\s*$",
        rf"{_BRACKET}\s*\]\s*(?i:eta)\b",
    )
)
_BLOCKS = r"━╸╺─▁▂▃▄▅▆▇█▉▊▋▌▍▎▏░▒▓■□⣿⣷⣀"
_PERCENT = r"(?P<percent>[0-9]{1,3})(?:\.[0-9]+)?\s?%"
_BAR_FORMS = tuple(
    re2.compile(form)
    for form in (
        # tqdm and Lightning: "Epoch 3:  12%|#2   | 12/100 [00:01<00:07, acc=0.91]"; also 1.2k/10.0k.
        rf"(?:^|[|\s:])(?P<done>{COUNT})/(?P<total>{COUNT})\s*\[[0-9:]+<",
        # tqdm without a total, which is never known to be full: "12it [00:01, 12.1it/s, acc=0.91]", in any unit.
        rf"(?P<done>{COUNT})\s?[A-Za-z]*\s\[[0-9]+:[0-9:]+,[^\]]*/",
        # fastprogress: "12.00% [12/100 00:01<00:07"; ignite: "[12/100]  12%|#2  , acc=0.91 [00:01<00:07]".
        rf"\[(?P<done>{_NUMBER})/(?P<total>{_NUMBER})(?:\s+[0-9:]+<|\]\s+[0-9]{{1,3}}%\s*\|)",
        # alive-progress: "|###   | 12/100 [12%]"; progressbar2: " 12% (12 of 100) |##   |".
        rf"\|\s*(?P<done>{_NUMBER})/(?P<total>{_NUMBER})\s*\[[0-9]+%",
        rf"[0-9]%\s*\((?P<done>{_NUMBER}) of (?P<total>{_NUMBER})\)",
        # rich: "Epoch 1/9 ━━━━━ 12/100 0:00:01", "━━━━━  12% 0:00:07".
        rf"[{_BLOCKS}][\s|]*(?:[0-9]{{1,3}}(?:\.[0-9]+)?\s?%\s*)?(?P<done>{_NUMBER})/(?P<total>{_NUMBER})\b",
        rf"[{_BLOCKS}][\s|]*{_PERCENT}",
        # Keras: "12/100 [==>....] - ETA: 3s - accuracy: 0.91", and with another bar since its version 3.
        rf"(?:^|[\s:|])(?P<done>{_NUMBER})/(?P<total>{_NUMBER})\s*(?:\[[=>.#*-][=>.#*\s-]*\]|[{_BLOCKS}])",
        # The scripts for CIFAR: "[==>......]  Step: 20ms | Loss: 0.5 | Acc: 92.1% (23000/25000)   200/391".
        rf"\[[=>.#-]{{8,}}\].*\s(?P<done>{_NUMBER})/(?P<total>{_NUMBER})\s*$",
        # " 12%|##    |", "[####----]  12%".
        rf"{_PERCENT}\s*\|(?:[{_BLOCKS}#=>*][{_BLOCKS}#=>*\s0-9.-]*|\s*\|)",
        rf"{_PERCENT}\s*\[[=>.#*-][=>.#*\s-]*\]",
        rf"\[[=>.#*-][=>.#*\s-]+\]\s*{_PERCENT}",
        # rich without a count: "━━━━━ 0:00:07", which does not say how far it is.
        r"[━╸╺█]{3}\s*(?P<done>[0-9]+:[0-9]|-:--)",
    )
)
# Each form needs one of these; most lines have none, and thousands are read a second.
_MAY_BE_BAR = re2.compile(rf"[0-9{_PREFIXES}]\s*/\s*[0-9]|[0-9]\s?%|[0-9] of [0-9]|\[[0-9]+:|[{_BLOCKS}]")
_OF_EPOCHS = re2.compile(r"(?i)\bepochs?\W*$")


@dataclass(frozen=True)
class ProgressBar:
    """How far a bar is.

    Attributes:
        done: The steps that are done, as the bar has them.
        total: All steps; None if the bar has none.
        is_drawn: Whether a library draws the bar, and draws it again; else a script prints its steps.
    """

    done: str
    total: str | None
    is_drawn: bool = False

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


def progress_bar_of(text: str) -> ProgressBar | None:
    """The progress bar of a line, or its count of steps; None if it has none.

    Args:
        text: The text of a line, without escape sequences.

    Example:
        >>> progress_bar_of("Epoch 3:  12%|#2        | 12/100 [00:01<00:07, 12.1it/s, acc=0.91]").is_full
        False
        >>> progress_bar_of("Epoch 3: 100%|##########| 100/100 [00:08<00:00, 12.0it/s, acc=0.88]").is_full
        True
        >>> progress_bar_of("epoch 3/10 accuracy=0.88") is None
        True
    """
    if _MAY_BE_BAR.search(text) is None:
        return None
    return drawn_bar_of(text) or step_count_of(text)


def drawn_bar_of(text: str) -> ProgressBar | None:
    """The bar that a library draws, and draws again; None if a line has none."""
    for form in _BAR_FORMS:
        found = form.search(text)
        if found is None:
            continue
        if "percent" in form.groupindex:
            return ProgressBar(found.group("percent"), "100", is_drawn=True)
        # "Epoch 9/9 ━━━━━ 0:00:07" does not say how far the bar is.
        is_of_epochs = _OF_EPOCHS.search(text[: found.start(form.groupindex["done"])]) is not None
        has_total = "total" in form.groupindex and not is_of_epochs
        return ProgressBar(found.group("done"), found.group("total") if has_total else None, is_drawn=True)
    return None


def step_count_of(text: str) -> ProgressBar | None:
    """The count of steps that a script prints in a line; None if there is none.

    Example:
        >>> step_count_of("Test: [  78/78]  Time: 0.1 (0.2)  Loss:  0.41 (1.80)")
        ProgressBar(done='78', total='78', is_drawn=False)
    """
    for form in _STEP_FORMS if "/" in text or " of " in text else ():
        found = form.search(text)
        if found is not None:
            return ProgressBar(found.group("done"), found.group("total"))
    return None
