"""Which ranks of an attempt reported their end, so that the one that died first can be named.

When a process dies, the others of its training fail in their next step, and report that they end. The one
that was killed does not.
"""

from __future__ import annotations

from wattloop.messages import Report
from wattloop_operator.api.attempt import MAX_MEASURING_RANKS, Progress

MAX_NAMED_RANKS = 8


def ended_ranks_after(before: Progress, report: Report) -> str:
    """The bit mask of the ranks that reported their end, after a report."""
    if not (report.finished or report.failed) or report.rank >= MAX_MEASURING_RANKS:
        return before.ended_ranks
    return f"{int(before.ended_ranks, 16) | 1 << report.rank:x}"


def killed_ranks(progress: Progress) -> str:
    """The ranks that ended without a report while others reported their end, as text; empty if there are none.

    Example:
        >>> killed_ranks(Progress(ranks=4, ended_ranks="b"))
        'rank 2 of 4 ended without a report'
        >>> killed_ranks(Progress(ranks=4, ended_ranks="0")), killed_ranks(Progress(ranks=4, ended_ranks="f"))
        ('', '')
    """
    ended = int(progress.ended_ranks, 16)
    silent = [rank for rank in range(min(progress.ranks, MAX_MEASURING_RANKS)) if not ended >> rank & 1]
    if not ended or not silent:
        return ""
    named = ", ".join(map(str, silent[:MAX_NAMED_RANKS]))
    others = len(silent) - MAX_NAMED_RANKS
    more = f" and {others} others" if others > 0 else ""
    return f"rank{'s' if len(silent) > 1 else ''} {named}{more} of {progress.ranks} ended without a report"
