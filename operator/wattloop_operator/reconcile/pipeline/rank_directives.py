"""Decides what the ranks of a pipeline do, in two phases: docs/internals/plan-service.md."""

import math
from dataclasses import replace
from datetime import datetime

from wattloop.pipeline.knobs import KnobChoices
from wattloop.pipeline.plan_messages import FREE, MAX_ITERATIONS, PLAN, PROFILE, Directive, RankRegistration
from wattloop.wire.training_messages import MAX_REASON_CHARACTERS
from wattloop_operator.reconcile.pipeline.job_plan import NOT_PLANNED, chosen_point
from wattloop_operator.reconcile.pipeline.liveness import (
    is_timed,
    iteration_of,
    missing_ranks,
    named,
    report_seconds,
    silence_timeout,
    silent_ranks,
)
from wattloop_operator.reconcile.pipeline.measured_excess import free_iterations_of, have_other_length
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    IssuedDirective,
    PipelineFrontier,
    PipelineRank,
    PipelineState,
)
from wattloop_operator.reconcile.pipeline.profile import (
    common_clocks,
    instructions_by_pipeline_rank,
    is_profiled,
    iterations_per_clock,
    kinds_of,
    profile_digest,
    remaining_clocks,
)
from wattloop_operator.reconcile.pipeline.reports import refuses
from wattloop_operator.reconcile.pipeline.straggling import with_noticed_straggler
from wattloop_operator.reconcile.pipeline.withdrawal import with_withdrawn_plan

WARM_UP_ITERATIONS = 2
TIMED = "the first iterations are timed"
MARGIN_REPORTS = 3
MARGIN_ITERATIONS = 2


def decided(state: PipelineState, now: datetime) -> PipelineState:
    """The state with the directive that follows from everything else in it, and whether it waits for the planner."""
    state = _with_directive(state, now)
    waits = needs_plan(state, now)
    return state if waits == state.waits_for_plan else replace(state, waits_for_plan=waits)


def _with_directive(state: PipelineState, now: datetime) -> PipelineState:
    state = with_withdrawn_plan(with_noticed_straggler(state, now))
    has_plan = state.directive.mode != PLAN or state.running_frontier is not None
    if has_plan and _finishes(state) and _all_acknowledge(state, state.directive.number):
        # The ranks that still run keep what they do, unless their plan was replaced meanwhile.
        return state
    goal = _goal(state, now)
    if goal.mode == FREE and state.directive.mode == FREE:
        directive = replace(state.directive, reason=goal.reason)
    elif _is_issued(state, goal) and not have_other_length(state):
        directive = state.directive
    else:
        directive = _issued(state, goal, now)
    if directive.mode != FREE and directive.first_iteration is None and _all_acknowledge(state, directive.number):
        directive = replace(directive, first_iteration=_first_iteration(state, now))
    return state if directive == state.directive else replace(state, directive=directive)


def needs_plan(state: PipelineState, now: datetime) -> bool:
    """Whether the profile waits for the planner."""
    if not state.job_plan.enabled or state.profile is None or missing_ranks(state) or not state.ranks:
        return False
    if _uncovered(state) or not is_profiled(state):
        return False
    frontier = state.frontier
    if frontier is None or frontier.profile_digest != profile_digest(state):
        return True
    return frontier.retry_at is not None and frontier.retry_at <= now


def directive_for(state: PipelineState, rank: int, process: str, now: datetime) -> Directive:
    """The answer to a message of a process."""
    issued = state.directive
    pending = issued.first_iteration is None and (issued.mode != FREE or issued.reason == TIMED)
    seconds = report_seconds(state.expected_ranks, pending=pending)
    present = state.ranks.get(rank)
    if present is None or present.registration.process != process:
        return Directive(known=False, report_seconds=seconds)
    refusal = "the rank could not hold clocks lately" if refuses(present, now) else ""
    if present.mismatch or refusal or issued.mode == FREE:
        reason = present.mismatch or refusal or issued.reason
        return _free(issued.number, seconds, reason)
    clocks, knobs = issued.clocks_megahertz, None
    if issued.mode == PLAN:
        chosen = _rank_plan(state, present.registration)
        if chosen is None:
            return _free(issued.number, seconds, "the plan does not fit this rank")
        clocks, knobs = chosen
    return Directive(
        number=issued.number,
        mode=issued.mode,
        first_iteration=issued.first_iteration,
        clocks_megahertz=clocks,
        knobs=knobs,
        free=issued.free,
        warm_up_iterations=WARM_UP_ITERATIONS,
        iterations_per_clock=issued.iterations_per_clock,
        report_seconds=seconds,
        reason=issued.reason[:MAX_REASON_CHARACTERS],
    )


def _free(number: int, seconds: float, reason: str) -> Directive:
    return Directive(number=number, first_iteration=0, report_seconds=seconds, reason=reason[:MAX_REASON_CHARACTERS])


def _rank_plan(
    state: PipelineState, registration: RankRegistration
) -> tuple[tuple[int, ...], KnobChoices | None] | None:
    """The clocks and knobs of a rank by the present plan; None if the plan is not one of its instructions."""
    issued, frontier = state.directive, state.running_frontier
    point = issued.point
    if issued.straggler_point is not None and registration.data_rank not in issued.stragglers:
        point = issued.straggler_point
    if frontier is None or point is None:
        return None
    rows = frontier.points[point].clocks_megahertz[registration.pipeline_rank :][:1]
    if not rows or len(rows[0]) != len(registration.instructions):
        return None
    return rows[0], frontier.rank_knobs(point, registration.pipeline_rank)


def _goal(state: PipelineState, now: datetime) -> IssuedDirective:
    """What the ranks are to do, before it is issued: without a number."""
    problem = "" if state.job_plan.enabled else NOT_PLANNED
    problem = problem or _incomplete(state, now) or _uncovered(state)
    if not problem and not common_clocks(state):
        problem = "no clock may be held on the GPUs of all ranks"
    if problem := problem or _common_mismatch(state):
        return IssuedDirective(reason=problem)
    if not is_timed(state):
        return IssuedDirective(reason=TIMED)
    if not is_profiled(state):
        return _profile_goal(state, now)
    digest, frontier = profile_digest(state), state.frontier
    if frontier is None or frontier.profile_digest != digest:
        return IssuedDirective(reason="the profile is complete, and the plan is computed")
    if frontier.problem or not frontier.points:
        return IssuedDirective(reason=f"there is no plan: {frontier.problem}")
    return _plan_goal(state, frontier)


def _profile_goal(state: PipelineState, now: datetime) -> IssuedDirective:
    if refusing := tuple(number for number, rank in sorted(state.ranks.items()) if refuses(rank, now)):
        return IssuedDirective(reason=f"{named(refusing)} could not hold clocks lately, and all measure together")
    present, common = state.directive, set(common_clocks(state))
    # What has been measured since stays in the list, or the ranks would begin again after each report. A rank may
    # have registered again with fewer clocks.
    listed = present.clocks_megahertz if present.mode == PROFILE else ()
    clocks = tuple(clock for clock in listed if clock in common) or remaining_clocks(state)
    return IssuedDirective(mode=PROFILE, reason="the instructions are measured at each clock", clocks_megahertz=clocks)


def _finishes(state: PipelineState) -> bool:
    return any(rank.finished for rank in state.ranks.values())


def _incomplete(state: PipelineState, now: datetime) -> str:
    """Which ranks are not there; empty if all are."""
    if not state.ranks:
        return "no rank has registered"
    if missing := missing_ranks(state):
        return f"of {state.expected_ranks} ranks, {named(missing)} {_verb(missing)} not registered"
    if silent := silent_ranks(state, now):
        timeout = silence_timeout(state.expected_ranks).total_seconds()
        return f"{named(silent)} {_verb(silent)} sent no report for {timeout:g} s"
    return "a rank has finished, and another one begins" if _finishes(state) else ""


def _verb(ranks: tuple[int, ...]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _uncovered(state: PipelineState) -> str:
    """Which part of the model no rank runs; empty if every part is run."""
    kinds: dict[int, set[str]] = {}
    for instructions in instructions_by_pipeline_rank(state).values():
        for kind, stage in kinds_of(instructions):
            kinds.setdefault(stage, set()).add("backward" if kind == "forwardbackward" else kind)
    stages = state.registration.stages
    if missing := sorted(set(range(stages)) - kinds.keys()):
        return f"no rank has instructions of stage {missing[0]} of {stages}"
    passes = {stage: found & {"forward", "backward"} for stage, found in kinds.items()}
    complete = set[str]().union(*passes.values())
    for stage, found in sorted(passes.items()):
        if lacking := sorted(complete - found):
            other = next(each for each, there in sorted(passes.items()) if lacking[0] in there)
            return f"stage {stage} has no {lacking[0]} instructions, and stage {other} has"
    return ""


def _common_mismatch(state: PipelineState) -> str:
    """A mismatch that no other rank of the same pipeline rank makes up for; empty if there is none."""
    by_pipeline_rank: dict[int, list[PipelineRank]] = {}
    for rank in state.ranks.values():
        by_pipeline_rank.setdefault(rank.registration.pipeline_rank, []).append(rank)
    for ranks in by_pipeline_rank.values():
        if all(rank.mismatch for rank in ranks):
            return f"rank {ranks[0].registration.rank} runs other instructions than registered: {ranks[0].mismatch}"
    return ""


def _plan_goal(state: PipelineState, frontier: PipelineFrontier) -> IssuedDirective:
    point = chosen_point(frontier, state).plan
    if withdrawal := frontier.withdrawal(point):
        return IssuedDirective(reason=withdrawal.reason)
    straggler = state.straggler
    beside = None
    if straggler is not None and straggler.noticed:
        found = chosen_point(frontier, state, straggler.plan_seconds)
        beside = found.plan if found.for_straggler else None
    planned = frontier.points[point if beside is None else beside].time_seconds
    goal = IssuedDirective(
        mode=PLAN,
        reason=f"iterations of {planned:.4g} s by the plan",
        profile_digest=frontier.profile_digest,
        point=point,
    )
    if straggler is None or beside is None:
        return goal
    reason = f"{goal.reason}, because a straggler takes {straggler.iteration_seconds:.4g} s"
    return replace(goal, reason=reason, straggler_point=beside, stragglers=straggler.data_ranks)


def _is_issued(state: PipelineState, goal: IssuedDirective) -> bool:
    """Whether the present directive is the goal, and no new process has replaced one that began with it."""
    issued = state.directive
    same = (
        issued.mode == goal.mode
        and issued.clocks_megahertz == goal.clocks_megahertz
        and issued.profile_digest == goal.profile_digest
        and (issued.point, issued.straggler_point) == (goal.point, goal.straggler_point)
        and issued.stragglers == goal.stragglers
    )
    return same and (issued.first_iteration is None or _all_acknowledge(state, issued.number))


def _issued(state: PipelineState, goal: IssuedDirective, now: datetime) -> IssuedDirective:
    if goal.mode == PROFILE:
        goal = replace(goal, clocks_megahertz=remaining_clocks(state) or goal.clocks_megahertz)
    return replace(
        goal,
        number=state.directive.number + 1,
        iterations_per_clock=iterations_per_clock(state) if goal.mode == PROFILE else 1,
        issued_at=now,
        # Beside a straggler, all would wait for it.
        free=free_iterations_of(state) if goal.mode == PLAN and goal.straggler_point is None else None,
    )


def _all_acknowledge(state: PipelineState, number: int) -> bool:
    return all(rank.acknowledged >= number for rank in state.ranks.values())


def _first_iteration(state: PipelineState, now: datetime) -> int:
    """An iteration that no rank reaches before it has sent further reports."""
    wait = MARGIN_REPORTS * report_seconds(state.expected_ranks, pending=True)
    latest = 0.0
    for rank in state.ranks.values():
        assert rank.report is not None
        elapsed = max((now - rank.heard_at).total_seconds(), 0.0)
        latest = max(latest, rank.report.iterations + (elapsed + wait) / iteration_of(state, rank))
    return min(math.ceil(latest) + MARGIN_ITERATIONS, MAX_ITERATIONS)
