"""Which ranks of a pipeline are there: how often each reports, how long its iterations take, which are missing.

The ranks of a pipeline run their iterations in step. So a rank of which no iteration is known yet, such as one that has
just been replaced, takes as long as the others.
"""

from datetime import datetime, timedelta

from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineRank, PipelineState

REPORT_SECONDS = 5.0
# While a directive waits for acknowledgements, its ranks report more often.
PENDING_REPORT_SECONDS = 1.0
# Of all ranks of a pipeline together; with more ranks each reports less often.
MAX_REPORTS_PER_SECOND = 50.0
SILENT_REPORTS = 3
MIN_SILENT_SECONDS = 30.0
MAX_NAMED_RANKS = 3
# No training is faster. A rank that states a shorter time would get as many iterations as no integer counts.
MIN_ITERATION_SECONDS = 0.001


def report_seconds(ranks: int, *, pending: bool = False) -> float:
    """The time between two reports of a rank.

    Args:
        ranks: Number of ranks of the job.
        pending: Whether a directive waits for acknowledgements.

    Example:
        >>> report_seconds(8), report_seconds(8, pending=True), report_seconds(1_000)
        (5.0, 1.0, 20.0)
    """
    return max(PENDING_REPORT_SECONDS if pending else REPORT_SECONDS, ranks / MAX_REPORTS_PER_SECOND)


def silence_timeout(ranks: int) -> timedelta:
    """How long a rank may be silent before it counts as dead: three reports, and at least 30 s."""
    return timedelta(seconds=max(SILENT_REPORTS * report_seconds(ranks), MIN_SILENT_SECONDS))


def is_silent(rank: PipelineRank, now: datetime) -> bool:
    """Whether a rank that has not finished has sent nothing for its time-out."""
    return not rank.finished and now - rank.heard_at > silence_timeout(rank.registration.ranks)


def silent_ranks(state: PipelineState, now: datetime) -> tuple[int, ...]:
    """The ranks that have died, as far as their silence tells, in order."""
    return tuple(sorted(number for number, rank in state.ranks.items() if is_silent(rank, now)))


def missing_ranks(state: PipelineState) -> tuple[int, ...]:
    """The ranks that have not registered, in order."""
    if len(state.ranks) == state.expected_ranks:
        return ()
    return tuple(number for number in range(state.expected_ranks) if number not in state.ranks)


def named(ranks: tuple[int, ...]) -> str:
    """The ranks for a message.

    Example:
        >>> named((4,)), named((0, 2, 3, 5, 7))
        ('rank 4', 'ranks 0, 2, 3 and 2 others')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:MAX_NAMED_RANKS]))
    return f"ranks {shown}" + (f" and {len(ranks) - MAX_NAMED_RANKS} others" if len(ranks) > MAX_NAMED_RANKS else "")


def is_timed(state: PipelineState) -> bool:
    """Whether a rank has told how long its iterations take."""
    return any(rank.iteration_seconds for rank in state.ranks.values())


def slowest_iteration(state: PipelineState) -> float:
    """Time of an iteration of the slowest rank, in seconds. Call it with a state that `is_timed`."""
    return max(_times(state))


def iteration_of(state: PipelineState, rank: PipelineRank) -> float:
    """Time of an iteration of a rank, in seconds; while it is not known, that of the fastest other one."""
    return max(rank.iteration_seconds or min(_times(state)), MIN_ITERATION_SECONDS)


def _times(state: PipelineState) -> list[float]:
    known = (rank.iteration_seconds for rank in state.ranks.values())
    return [max(seconds, MIN_ITERATION_SECONDS) for seconds in known if seconds]
