"""The text of a line that a training writes.

A terminal's escape sequences are no text. A progress bar that is not ended by a line feed stands before the next line
that the script prints. Several ranks may print the same line.
"""

from __future__ import annotations

import re

import re2

from wattloop_operator.domain.progress_bar import COUNT

# CSI with its parameters, such as colours and "erase the line"; OSC, such as a title; the short sequences.
_ESCAPES = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -/]*[0-~])|\x08")
# A no-break or thin space separates the thousands of a number.
_SPACES = str.maketrans(dict.fromkeys("\xa0\u2007\u2009\u202f", " "))
# The bracket of tqdm's bar: "12/100 [00:01<00:07, 12.1it/s]", or without a total.
_BAR_BRACKET = re2.compile(rf"{COUNT}/{COUNT}\s*(\[)[0-9:]+<[^,\]]*,|{COUNT}\s?[A-Za-z]*\s(\[)[0-9]+:[0-9:]+,")
_BRACKET_GROUPS = (1, 2)
_MAX_PARTS = 8
# What differs between the ranks that print a line: "[rank1]: ", "[default1]:", "[1,0]<stdout>:", "1: ", "(pid=12) ".
_RANK = re.compile(
    r"\s*(?:[\[(]?(?:local[ _]?rank|rank|default|worker|process|proc|node|gpu)[\s_:#=]{0,3}[0-9]{1,6}[\])]?"
    r"[\s:|,-]{0,4}|\[[0-9]{1,6}(?:,[0-9]{1,6})?\](?:<[a-z]{1,9}>)?:\s?|[0-9]{1,6}:\s"
    r"|\([^()]{0,80}pid=[0-9]{1,9}[^()]{0,80}\)\s)",
    re.IGNORECASE,
)
_TIME = re.compile(r"\b[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?")
_RANK_NAME = re.compile(r"\s*\[?(?:local[ _]?rank|rank|default)[\s_:#=]{0,3}([0-9]{1,6})", re.IGNORECASE)
_MAX_LINES = 64
_NO_LINES = 0
MAX_QUOTED_CHARACTERS = 200


def plain_text(line: bytes) -> str:
    r"""The text of a line, without escape sequences.

    Example:
        >>> plain_text(b"\x1b[2K\x1b[32mval_acc\x1b[0m: 0.91")
        'val_acc: 0.91'
    """
    text = line.decode("utf-8", "replace")
    if "\x1b" in text or "\x08" in text:
        text = _ESCAPES.sub("", text)
    return text if text.isascii() else text.translate(_SPACES)


def parts_of(text: str) -> list[str]:
    """The lines that stand in a line: each bar of tqdm, and the text behind it.

    Example:
        >>> parts_of(" 33%|###3      | 1/3 [00:01<00:02,  1.0s/it]Epoch 2: accuracy=0.95")
        [' 33%|###3      | 1/3 [00:01<00:02,  1.0s/it]', 'Epoch 2: accuracy=0.95']
    """
    parts: list[str] = []
    rest = text
    while len(parts) < _MAX_PARTS and (end := _bar_end(rest)) is not None:
        parts.append(rest[:end])
        rest = rest[end:]
    return [*parts, rest] if rest.strip() or not parts else parts


def _bar_end(text: str) -> int | None:
    """Where the first bar ends; None if there is none, or if what follows may be its postfix."""
    found = _BAR_BRACKET.search(text) if "[" in text else None
    if found is None:
        return None
    depth = 0
    for position in range(max(found.start(group) for group in _BRACKET_GROUPS), len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return None if text[position + 1 :].lstrip()[:1] in (",", ":", "|") else position + 1
    return None


class RankLines:
    """Which lines of evaluations several ranks print.

    With epochs, one repeats another one of the same epoch; without them, one that directly follows or follows the same
    lines, which may also be another evaluation with the same value. Of ranks that name themselves, the first counts.

    Example:
        >>> lines = RankLines()
        >>> [lines.is_repeated(f"[rank{rank}]: accuracy: 0.91", epoch) for epoch in (1.0, 2.0) for rank in (0, 1)]
        [False, True, False, True]

    Attributes:
        notice: What is in doubt; empty if nothing is.
    """

    def __init__(self) -> None:
        self.notice = ""
        self._epoch: float | None = None
        self._lines: set[str] = set()
        self._rank = ""
        # The lines since the latest evaluation, and those before it.
        self._others = self._others_before = _NO_LINES

    def note_other(self, text: str) -> None:
        """Note a line that is no evaluation."""
        if self._epoch is None and text and not text.isspace():
            self._others = hash((self._others, _without_rank(text)))

    def is_repeated(self, text: str, epoch: float | None) -> bool:
        """Whether the next evaluation's line repeats one, or is of a further rank."""
        found = _RANK_NAME.match(text)
        rank = "" if found is None else found.group(1)
        self._rank = self._rank or rank
        line = _without_rank(text)
        if rank and rank != self._rank:
            if epoch == self._epoch and line not in self._lines:
                self._notify(f"several ranks print the metric, and only the values of rank {self._rank} count")
            return True
        repeated = self._repeats(line, epoch)
        if repeated and epoch is None:
            self._notify(
                f"the line {text.strip()[:MAX_QUOTED_CHARACTERS]!r} was printed several times in a row and counts "
                "once, as several ranks print it: if each is an evaluation, print its epoch beside it"
            )
        return repeated

    def _repeats(self, line: str, epoch: float | None) -> bool:
        others, self._others = self._others, _NO_LINES
        if epoch is not None and epoch == self._epoch:
            repeated = line in self._lines
            if len(self._lines) < _MAX_LINES:
                self._lines.add(line)
            return repeated
        is_same_place = others in (_NO_LINES, self._others_before)
        repeated = epoch is None and self._epoch is None and line in self._lines and is_same_place
        if not repeated:
            self._others_before = others
        self._epoch, self._lines = epoch, {line}
        return repeated

    def _notify(self, notice: str) -> None:
        self.notice = self.notice or notice


def _without_rank(text: str) -> str:
    found = _RANK.match(text)
    return _TIME.sub("", text if found is None else text[found.end() :]).strip()
