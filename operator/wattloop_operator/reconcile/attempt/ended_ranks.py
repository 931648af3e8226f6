"""Which ranks of an attempt reported their end, so that the one that died first can be named.

When a process dies, the others of its training fail in their next step, and report that they end. The one
that was killed does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from wattloop.messages import Report
from wattloop_operator.api.attempt import MAX_MEASURING_RANKS, Progress
from wattloop_operator.domain.snapshot import WorkloadState

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
    return f"{named_ranks(silent, progress.ranks)} ended without a report"


def named_ranks(ranks: Sequence[int], count: int) -> str:
    """Some of a number of ranks, as text; not empty.

    Example:
        >>> named_ranks([2], 4), named_ranks([1, 3], 4), named_ranks(range(90, 100), 100)
        ('rank 2 of 4', 'ranks 1, 3 of 4', 'ranks 90, 91, 92, 93, 94, 95, 96, 97 and 2 others of 100')
    """
    others = len(ranks) - MAX_NAMED_RANKS
    more = f" and {others} others" if others > 0 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MAX_NAMED_RANKS]))}{more} of {count}"


def dead_rank(progress: Progress, workload: WorkloadState, pods: int) -> str:
    """The rank of a failed workload that died first, with its pod and node as far as known; empty if none is known.

    Args:
        progress: What the attempt reported.
        workload: The workload, which has failed.
        pods: Number of its pods.

    Example:
        >>> from wattloop_operator.domain.snapshot import WorkloadPod
        >>> failed = WorkloadState("a", failed_pod=WorkloadPod("a-2-x", "gpu-7", 2))
        >>> dead_rank(Progress(ranks=4, ended_ranks="b"), failed, 4)
        'rank 2 of 4 ended without a report; pod a-2-x of index 2 on node gpu-7 failed first'
        >>> dead_rank(Progress(ranks=4), failed, 4)
        'rank 2 of 4 died; pod a-2-x of index 2 on node gpu-7 failed first'
    """
    if progress.ranks == 1:
        return ""
    pod, rank = workload.failed_pod, killed_ranks(progress)
    if not rank and pod is not None and pod.index is not None and pods == progress.ranks:
        # Each pod has one rank, that of its index. The others were ended with it, or reported their failure.
        rank = f"rank {pod.index} of {progress.ranks} died"
    return f"{rank}; {pod} failed first" if rank and pod is not None else rank
