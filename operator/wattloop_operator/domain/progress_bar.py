"""Tells whether a line is a progress bar, and how far it is.

A bar such as tqdm's shows the mean of the batches so far, or the evaluation of the epoch before, beside the number of
the epoch that has begun. Neither is an evaluation of this epoch. The full bar has what the script prints at its end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import re2

from wattloop_operator.domain.training_data import EVALUATION, TRAINING

_PREFIXES = "kMGTPE"
_POWERS = {prefix: power for power, prefix in enumerate(_PREFIXES, 1)} | {"K": 1, "B": 3}
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
    digits = re.sub("[,_']", "", count)
    power = _POWERS.get(digits[-1], 0)
    return float(digits[:-1] if power else digits) * 1000.0**power


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


# "Batch [100]", "global_step=100", '"step": 100', "[1,  2000] loss: 2.1". A batch=64 behind the metric is its size.
_STEP_NUMBER = re2.compile(
    r"(?i)(?:^|[^A-Za-z0-9_/.-])(?:"
    r"[\"']?(?:global[ _]?step|steps?|iters?|iterations?|itr|mini-?batch|num_updates|updates?)[\"']?"
    r"(?:\([a-z]+\))?[\s:=#\[(]*[0-9]+(?:$|[^A-Za-z0-9_.%]|\.(?:$|\s))"
    r"|[\"']batch[\"']\s*:\s*[0-9]|batch[\s#]*[\[(]\s*[0-9]|batch\s+#?[0-9]"
    r"|(?:after|at)\s+[0-9]+\s+(?:steps|iterations|batches)\b)"
    r"|^\s*\[\s*[0-9]+\s*,\s*[0-9]+\s*\]\s"
)
_BATCH_BEFORE = re2.compile(r"(?i)(?:^|[^A-Za-z0-9_/.-])batch(?:_?idx)?\s*[:=]\s*[0-9]")
_AMOUNT = r"[0-9]{1,15}(?:[,_'][0-9]{3})*(?:\.[0-9]+(?=[kKMGB]))?[kKMGB]?"
# 200/2983, "200 of 2983"; not the date 2026/01/02, a path or a ratio. Python's engine, for its look-around.
_OF_TOTAL = re.compile(
    rf"(?<![\w./,'-])(?P<done>{_AMOUNT})\s{{0,4}}(?:/|(?:out )?of\s)\s{{0,4}}(?P<total>{_AMOUNT})(?![\w/]|[.,'][0-9])"
)
_DATE = re.compile(r"\W{0,3}[0-9]{2}/[0-9]{2}[\sT,]+[0-9]{2}:[0-9]{2}:[0-9]{2}")
# What a count before the value is of, if not of steps: "epoch 3/10", "fold 1/5", "correct 91/100", "mem 12/80 GB".
_NOT_OF_STEPS = re.compile(
    r"(?i)(?:^|[^A-Za-z])(?:epochs?|ep|folds?|cv|trials?|runs?|rounds?|seeds?|stages?|tasks?|models?|rank|gpus?|devices?"
    r"|nodes?|workers?|host|replica|mem|memory|ram|vram|lr|patience|acc|accuracy|correct|top-?[0-9]+|precision|recall"
    r"|hits?)[\"']?(?:\s{0,2}\([A-Za-z]+\))?[\s:=#\[(]{0,6}$"
)
_OTHERS_BEHIND = re.compile(r"(?i)[\s\])]{0,4}(?:epochs?|folds?|trials?|runs?)\b")
# Directly before an epoch, it is its count: "3/10 [0:12:03] epoch=3".
_EPOCH_BEHIND = re.compile(r"(?i)\bepoch[\s=:#\[]{0,6}([0-9]+)\b")
_UNITS = r"(?:mini-?)?batch(?:es)?|its?|iters?|iterations?|itr|steps?|updates?|upd"
_OF_TRAINING = r"(?:(?:training|gradient|optimi[sz]er)\s)?"
_EXAMPLES = r"samples?|examples?|images?|imgs?|tokens?|sequences|sentences|instances"
# No rate: not "12 it/s", "ms/batch 10", "samples per second: 12"; nor the size of a batch.
_NO_RATE = r"(?![\w/-]|\s?(?:/|per\b|size\b))"
_NUMBER_OF_UNITS = re.compile(
    rf"(?i)(?<![\w.,-]){_AMOUNT}\s{{0,2}}{_OF_TRAINING}(?:{_UNITS}){_NO_RATE}"
    r"|(?<![\w/.-])(?:its?|mb|(?:num_|n_)?batches|batch_(?:num(?:ber)?|no)|local_step|upd)[\"']?[\s:=#\[(]{1,6}[0-9]+[kM]?(?:$|[^\w.%]|\.(?:$|\s))"
    # The norm of a gradient is that of a step.
    r"|(?<![\w/.-])(?:(?:total_)?grad(?:ient)?[ _-]?norm|gnorm)[\"']?[\s:=]{1,4}[\"']?[0-9]"
)
_NUMBER_OF_EXAMPLES = re.compile(
    rf"(?i)(?<![\w./,-]){_AMOUNT}\s{{0,2}}{_OF_TRAINING}(?:{_EXAMPLES}){_NO_RATE}"
    rf"|(?<![A-Za-z/.-])(?:(?:{_EXAMPLES})(?:[ _](?:seen|so far|done|processed))?|seen)[\"']?[\s:=#]{{1,6}}[0-9]"
)
_DATA_BEFORE = re.compile(rf"(?i)(?:{TRAINING})[ _]$")
_FIELD_BEFORE = re.compile(r"[|\[│]\s{0,4}$")
# Behind an epoch, since without one they may count epochs: "epoch 1 i=200", "epoch 1 | 200-2983 |".
_INDEX = re.compile(
    r"(?i)\bepoch[\"']?[\s=:#\[]{0,6}[0-9].{0,90}?(?:(?<![\w/.-])(?:i|n_iter|idx|index|counter)[\"']?[\s:=#\[(]{1,6}"
    r"[0-9]+(?:$|[^\w.%]|\.(?:$|\s))|[|\[(]\s{0,4}[0-9]+\s?-\s?[0-9]+\s{0,4}[|\])])"
)
# An epoch that is not whole: "'epoch': 0.5".
_FRACTION_OF_EPOCH = re.compile(
    r"(?i)(?<![\w./-])(?<!per )(?<!for )epoch[\"']?[\s=:#\[]{0,6}[\"']?[0-9]+\.[0-9]*[1-9](?![\w%])"
)
# "Epoch 1 [20%]" and "Epoch [1][200]", but not "Epoch 3/10 (30%)".
_PART_OF_EPOCH = re.compile(
    r"(?i)\bepoch[\s=:#\[]{0,6}[0-9]+(?:[\s:,|\])(\[-]{1,6}[0-9]{1,2}(?:\.[0-9]+)?\s?%"
    r"|(?:/[0-9]+)?\]\s?\[\s{0,6}[0-9]+\s?\])"
)
_WINDOW_CHARACTERS = 60


def is_of_step(text: str, before: str) -> bool:
    """Whether a line that a script prints itself is of a step or a batch, and so has the metric of some batches.

    In doubt it is: what does not count is named to the user. A rate, such as ``12.1 it/s``, says nothing, nor do
    examples behind the value, over which it may be the mean.

    Args:
        text: The text of the line.
        before: What stands before the metric's name.

    Example:
        >>> [is_of_step(text, "") for text in ("Epoch[0] Batch [100] accuracy=0.99", "accuracy=0.9 batch=64")]
        [True, False]
        >>> [is_of_step(text, text) for text in ("epoch 1 | 200/2983 | ", "epoch 3/10 | ", "epoch 1, samples 6400, ")]
        [True, False, True]
    """
    if _STEP_NUMBER.search(text) is not None or _BATCH_BEFORE.search(before) is not None:
        return True
    if drawn_bar_of(text) is not None:
        return False
    if _FRACTION_OF_EPOCH.search(text) is not None or step_count_of(text) is not None or _has_part(text, before):
        return True
    return _PART_OF_EPOCH.search(before) is not None or _INDEX.search(before) is not None


def _has_part(text: str, before: str) -> bool:
    """Whether a line has a number of batches or samples that is not that of all."""
    if any(
        not _is_full(found) and _is_count_of_steps(text, found, is_before=found.start() < len(before))
        for found in _OF_TOTAL.finditer(text)
    ):
        return True
    rest = _OF_TOTAL.sub(lambda found: " " * len(found[0]) if _is_full(found) else found[0], text)
    if _NUMBER_OF_UNITS.search(rest) is not None:
        return True
    return any(
        _DATA_BEFORE.search(rest, max(found.start() - 10, 0), found.start()) is None
        for found in _NUMBER_OF_EXAMPLES.finditer(rest, 0, len(before))
    )


def _is_full(found: re.Match[str]) -> bool:
    return _number(found["done"]) >= _number(found["total"])


def _is_count_of_steps(text: str, found: re.Match[str], *, is_before: bool) -> bool:
    start, end = found.span()
    if _DATE.match(text) is not None and start <= 3:
        return False
    label = text[max(start - _WINDOW_CHARACTERS, 0) : start]
    if _NOT_OF_STEPS.search(label) is not None or _OTHERS_BEHIND.match(text, end) is not None:
        return False
    if not is_before:
        # Behind the value it may be the number of examples that are right.
        return _FIELD_BEFORE.search(label) is not None
    epoch = _EPOCH_BEHIND.search(text, end, end + _WINDOW_CHARACTERS)
    return epoch is None or int(epoch[1]) != _number(found["done"])
