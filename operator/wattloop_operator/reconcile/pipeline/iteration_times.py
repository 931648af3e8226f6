"""How long an iteration of a pipeline takes, as its ranks have measured it.

The ranks of a pipeline run their iterations in step. So a rank of which no iteration is known yet, such as one that has
just been replaced, takes as long as the others.
"""

from __future__ import annotations

from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineRank, PipelineState

# No training is faster. A rank that states a shorter time would get as many iterations as no integer counts.
MIN_ITERATION_SECONDS = 0.001


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
