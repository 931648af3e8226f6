"""Tells whether a line that a script prints itself is of a step or a batch, and so has the metric of some batches.

A count of which not all is done, such as ``200/2983``, makes it one, and so does a number of batches, updates or
samples before the metric: ``it 200``, ``6400 samples``. In doubt a line is of a step: what does not count is named to
the user. A rate, such as ``12.1 it/s``, says nothing, nor do examples behind the value, over which it may be the mean.
"""

from __future__ import annotations

import re

import re2

from wattloop_operator.domain.progress_bar import drawn_bar_of, step_count_of
from wattloop_operator.domain.training_data import TRAINING

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
_COUNT = r"[0-9]{1,15}(?:[,_'][0-9]{3})*(?:\.[0-9]+(?=[kKMGB]))?[kKMGB]?"
# 200/2983, "200 of 2983"; not the date 2026/01/02, a path or a ratio. Python's engine, for its look-around.
_OF_TOTAL = re.compile(
    rf"(?<![\w./,'-])(?P<done>{_COUNT})\s{{0,4}}(?:/|(?:out )?of\s)\s{{0,4}}(?P<total>{_COUNT})(?![\w/]|[.,'][0-9])"
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
    rf"(?i)(?<![\w.,-]){_COUNT}\s{{0,2}}{_OF_TRAINING}(?:{_UNITS}){_NO_RATE}"
    r"|(?<![\w/.-])(?:its?|mb|(?:num_|n_)?batches|batch_(?:num(?:ber)?|no)|local_step|upd)[\"']?[\s:=#\[(]{1,6}[0-9]+[kM]?(?:$|[^\w.%]|\.(?:$|\s))"
    # The norm of a gradient is that of a step.
    r"|(?<![\w/.-])(?:(?:total_)?grad(?:ient)?[ _-]?norm|gnorm)[\"']?[\s:=]{1,4}[\"']?[0-9]"
)
_NUMBER_OF_EXAMPLES = re.compile(
    rf"(?i)(?<![\w./,-]){_COUNT}\s{{0,2}}{_OF_TRAINING}(?:{_EXAMPLES}){_NO_RATE}"
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
_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}


def is_of_step(text: str, before: str) -> bool:
    """Whether a line is of a step or a batch.

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


def _number(count: str) -> float:
    digits = re.sub("[,_']", "", count)
    power = _PREFIXES.get(digits[-1])
    return float(digits) if power is None else float(digits[:-1]) * power
