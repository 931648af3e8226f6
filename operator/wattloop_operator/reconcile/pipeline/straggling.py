"""Notices stragglers: a data-parallel pipeline whose iterations take longer than those of the others."""

import itertools
import statistics
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta

from wattloop.pipeline.plan_messages import PLAN, StragglerNotice
from wattloop_operator.reconcile.pipeline.liveness import report_seconds
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineState, Straggler

# A pipeline is a straggler from this excess over the others on, and until its excess over its plan is below the other.
NOTICED_EXCESS = 0.05
OVER_EXCESS = 0.02
# A straggler is acted on after so many reports that show it.
NOTICED_REPORTS = 2
# A straggler whose time differs by less keeps its plan.
SAME_STRAGGLER = 0.02


def with_notice(state: PipelineState, notice: StragglerNotice, now: datetime) -> PipelineState:
    """The state with an announced straggler, or without one."""
    if notice.iteration_seconds is None:
        return replace(state, straggler=None)
    before = state.straggler
    new = Straggler(notice.iteration_seconds, notice.iteration_seconds, notice.reason, announced=True, since=now)
    if before is not None and before.announced and before.iteration_seconds == new.iteration_seconds:
        return state
    return replace(state, straggler=new)


def with_noticed_straggler(state: PipelineState, now: datetime) -> PipelineState:
    """The state with what the reported times of iterations say about stragglers.

    An announced straggler ends when its end is announced; the times only say which pipeline it is.
    """
    times = _times_by_data_rank(state)
    if times is None:
        return state
    before = state.straggler
    slow = _slow_pipelines(times)
    if before is not None and before.announced:
        known = before.data_ranks or slow
        return state if known == before.data_ranks else replace(state, straggler=replace(before, data_ranks=known))
    if before is not None and before.noticed:
        return replace(state, straggler=_present(state, before, times))
    if not slow:
        return replace(state, straggler=None) if before is not None else state
    seconds = max(times[each] for each in slow)
    since = now if before is None or before.since is None or before.data_ranks != slow else before.since
    others = f"the others {_others(times, slow):.4g} s"
    reason = f"the pipeline of data rank {', '.join(map(str, slow))} takes {seconds:.4g} s, {others}"
    noticed = now - since >= timedelta(seconds=NOTICED_REPORTS * report_seconds(state.expected_ranks))
    plan_seconds = seconds / _excess(state, slow)
    straggler = Straggler(seconds, plan_seconds, reason, False, data_ranks=slow, since=since, noticed=noticed)
    return replace(state, straggler=straggler)


def _times_by_data_rank(state: PipelineState) -> dict[int, float] | None:
    """Time of an iteration of each data-parallel pipeline under the present plan; None if not all are known."""
    found: dict[int, list[float]] = defaultdict(list)
    directive = state.directive
    if directive.mode != PLAN or directive.first_iteration is None:
        return None
    for rank in state.ranks.values():
        report = rank.report
        if report is None or report.applied_directive != directive.number or rank.recent_iteration_seconds is None:
            return None
        found[rank.registration.data_rank].append(rank.recent_iteration_seconds)
    return {data_rank: max(times) for data_rank, times in found.items()} if len(found) > 1 else None


def _slow_pipelines(times: dict[int, float]) -> tuple[int, ...]:
    """The data ranks whose pipelines are slower than the rest by more than noise, and fewer than the rest."""
    ordered = sorted(times, key=lambda data_rank: times[data_rank])
    gaps = [times[after] - times[before] for before, after in itertools.pairwise(ordered)]
    first = (len(ordered) + 1) // 2
    for place in range(first, len(ordered)):
        if gaps[place - 1] > NOTICED_EXCESS * statistics.median(times[each] for each in ordered[:place]):
            return tuple(sorted(ordered[place:]))
    return ()


def _others(times: dict[int, float], slow: tuple[int, ...]) -> float:
    return statistics.median(time for data_rank, time in times.items() if data_rank not in slow)


def _present(state: PipelineState, straggler: Straggler, times: dict[int, float]) -> Straggler | None:
    """The noticed straggler as the newest times show it; None if it is over."""
    frontier, point = state.running_frontier, state.directive.point
    seconds = max((times[each] for each in straggler.data_ranks if each in times), default=0.0)
    if frontier is None or point is None:
        return None
    planned = frontier.points[point].time_seconds
    if seconds <= planned * _excess(state, straggler.data_ranks) * (1 + OVER_EXCESS):
        return None
    if abs(seconds - straggler.iteration_seconds) <= SAME_STRAGGLER * straggler.iteration_seconds:
        return straggler
    excess = _excess(state, straggler.data_ranks)
    return replace(straggler, iteration_seconds=seconds, plan_seconds=seconds / excess)


def _excess(state: PipelineState, slow: tuple[int, ...]) -> float:
    """Realised over planned time of the pipelines that are no stragglers; at least 1."""
    frontier, directive, times = state.running_frontier, state.directive, _times_by_data_rank(state)
    point = directive.point if directive.straggler_point is None else directive.straggler_point
    if frontier is None or point is None or times is None or not set(times) - set(slow):
        return 1.0
    # A user's plan may leave its time open.
    planned = frontier.points[point].time_seconds
    return max(_others(times, slow) / planned, 1.0) if planned > 0 else 1.0
