"""Which ranks of an attempt ended and how, so that the one that failed first can be named.

The first report of an exception names the cause, unless that is a consequence itself. A process that is killed reports
nothing: it is one of those that did not report, and the launcher may say which.
"""

from collections.abc import Sequence

from wattloop.wire.training_messages import MAX_RANKS, Report
from wattloop_operator.domain.gpu_readings import MAX_MEASURING_RANKS
from wattloop_operator.domain.progress import FailedRank, Progress
from wattloop_operator.domain.snapshot import WorkloadState

MAX_NAMED_RANKS = 8


def ends_after(before: Progress, report: Report) -> dict[str, object]:
    """The fields about ended ranks after a report.

    A rank that reports again after its end was started again by its launcher, and all others with it.
    """
    ended = int(before.ended_ranks, 16)
    bit = 1 << report.rank if report.rank < MAX_MEASURING_RANKS else 0
    if not (report.finished or report.failure):
        return {"ended_ranks": "0", "first_failure": None} if ended & bit else {}
    first = before.first_failure
    if first is None and report.failure:
        first = FailedRank(rank=min(report.rank, MAX_RANKS), failure=report.failure, consequence=report.consequence)
    return {"ended_ranks": f"{ended | bit:x}", "first_failure": first}


def has_ended_by_report(progress: Progress) -> bool:
    """Whether rank 0 has reported its end, also by an exception such as that of `sys.exit`."""
    return bool(int(progress.ended_ranks, 16) & 1)


def has_silent_rank(progress: Progress) -> bool:
    """Whether one of several ranks has not reported its end."""
    return progress.ranks > 1 and bool(_silent_ranks(progress))


def first_failed(progress: Progress, workload: WorkloadState) -> str:
    """The rank that failed first, or those that may have, as text; empty if nothing is known.

    Example:
        >>> workload = WorkloadState("a")
        >>> first_failed(Progress(ranks=4, ended_ranks="b"), workload)
        'rank 2 of 4 ended without a report'
        >>> first_failed(Progress(ranks=4, ended_ranks="3"), workload)
        'rank 2 or 3 of 4 failed first: they ended without a report'
        >>> first_failed(Progress(ranks=4, ended_ranks="3"), WorkloadState("a", killed_ranks=(2,)))
        'rank 2 of 4 was killed'
        >>> first_failed(Progress(ranks=4, first_failure=FailedRank(rank=1, failure="ValueError")), workload)
        'rank 1 of 4 failed first (ValueError)'
    """
    first, count = progress.first_failure, progress.ranks
    silent = _silent_ranks(progress)
    killed = [rank for rank in workload.killed_ranks if rank in silent]
    if count == 1:
        # The exit code says more than that the script called sys.exit.
        return "" if first is None or first.failure == SystemExit.__name__ else first.failure
    if killed:
        return f"{_one_of(killed, count)} was killed{' first' if len(killed) > 1 else ''}"
    if first is not None and (not first.consequence or not silent):
        return f"rank {first.rank} of {count} failed first ({first.failure})"
    if not int(progress.ended_ranks, 16) or not silent:
        return ""
    if len(silent) == 1:
        return f"rank {silent[0]} of {count} ended without a report"
    return f"{_one_of(silent, count)} failed first: they ended without a report"


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
    """The rank of a failed workload that failed first, with its pod and node as far as known; empty if none is known.

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
    pod, rank, silent = workload.failed_pod, first_failed(progress, workload), _silent_ranks(progress)
    if pod is None:
        return rank
    if pods == progress.ranks and pod.index in silent and (not rank or _is_uncertain(progress, workload)):
        # Each pod has one rank, that of its index. The others were ended with it, or reported their failure.
        rank = f"rank {pod.index} of {progress.ranks} died"
    return f"{rank}; {pod} failed first" if rank else ""


def _is_uncertain(progress: Progress, workload: WorkloadState) -> bool:
    first = progress.first_failure
    by_report = first is not None and not first.consequence
    return not by_report and not workload.killed_ranks and len(_silent_ranks(progress)) > 1


def _silent_ranks(progress: Progress) -> list[int]:
    ended = int(progress.ended_ranks, 16)
    return [rank for rank in range(min(progress.ranks, MAX_MEASURING_RANKS)) if not ended >> rank & 1]


def _one_of(ranks: Sequence[int], count: int) -> str:
    if len(ranks) > MAX_NAMED_RANKS:
        return f"one of {named_ranks(ranks, count)}"
    first, last = ", ".join(map(str, ranks[:-1])), ranks[-1]
    return f"rank {first} or {last} of {count}" if first else f"rank {last} of {count}"
