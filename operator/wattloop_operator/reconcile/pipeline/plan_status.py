"""The status of a FrequencyPlan, from the state of the pipeline that runs it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from wattloop.pipeline.messages import FREE, PLAN
from wattloop_operator.api.applied_plan import AppliedFrequencyPlan, IterationStatus, RealisedIteration
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.frequency_plan import (
    MAX_FRONTIER_POINTS,
    ChosenPlan,
    FrequencyPlan,
    FrequencyPlanStatus,
    PipelineRanks,
    RealisedPlan,
)
from wattloop_operator.api.meta import Condition
from wattloop_operator.reconcile.conditions import condition
from wattloop_operator.reconcile.pipeline.liveness import named, silence_timeout, silent_ranks
from wattloop_operator.reconcile.pipeline.state import FrontierPoint, PipelineFrontier, PipelineRank, PipelineState

PLANNED, IN_FORCE, RANK_DEAD, MISMATCH = "Planned", "InForce", "RankDead", "Mismatch"
# Measured values change with every report; each change is a write to etcd.
SIGNIFICANT_DIGITS = 5
ERROR_DIGITS = 2
# Of the recurrence and the job, whose objects other controllers watch too, so that they change rarely.
APPLIED_DIGITS = 3
MAX_REASON_CHARACTERS = 512


@dataclass(frozen=True)
class Measured:
    """What the ranks measured under the present directive.

    Attributes:
        time_seconds: Time of an iteration of the slowest rank.
        energy_joules: Energy of an iteration, the mean over the pipelines; None until all ranks report it.
        iterations: Number of iterations, of the rank with the fewest.
        energy_error_joules: Standard error of the energy; None until all ranks report theirs.
    """

    time_seconds: float
    energy_joules: float | None
    iterations: int
    energy_error_joules: float | None = None


def measured(state: PipelineState) -> Measured | None:
    """What the ranks measured under the present plan; None until each of them has reported an iteration."""
    if state.directive.mode != PLAN or not state.ranks or len(state.ranks) != state.expected_ranks:
        return None
    reports = [rank.report for rank in state.ranks.values()]
    present = [
        report
        for report in reports
        if report is not None
        and report.applied_directive == state.directive.number
        and report.measured_iterations
        and report.iteration_seconds
    ]
    if len(present) < len(reports):
        return None
    energies = [report.iteration_joules for report in present if report.iteration_joules is not None]
    errors = [report.iteration_error_joules for report in present if report.iteration_error_joules is not None]
    registration = next(iter(state.ranks.values())).registration
    pipelines = registration.ranks // registration.pipeline_parallel
    return Measured(
        max(report.iteration_seconds or 0.0 for report in present),
        sum(energies) / pipelines if len(energies) == len(present) else None,
        min(report.measured_iterations for report in present),
        # Each rank reads counters of its own.
        math.hypot(*errors) / pipelines if len(errors) == len(present) else None,
    )


def plan_status(state: PipelineState, plan: FrequencyPlan, *, ended: bool, now: datetime) -> FrequencyPlanStatus:
    """The status of the plan that a pipeline runs or waits for.

    Args:
        state: The pipeline; its measurements are not needed.
        plan: The FrequencyPlan as it was read.
        ended: Whether the attempt has ended. What it realised then stays.
        now: The time, with a time zone.
    """
    frontier, before = state.frontier, plan.status
    highest = None if frontier is None else frontier.highest_clocks
    status = FrequencyPlanStatus(
        observed_generation=plan.metadata.generation,
        conditions=tuple(_conditions(state, before.conditions, ended=ended, now=now)),
        recurrence=state.name,
        ranks=PipelineRanks(
            expected=state.expected_ranks,
            registered=len(state.ranks),
            profiled=sum(rank.report is not None and rank.report.profiled for rank in state.ranks.values()),
        ),
        frontier=() if frontier is None else _shown_points(frontier),
        max_clocks=None if highest is None else _iteration(highest),
    )
    if before.recurrence == state.name and (ended or chosen_point(state) is None):
        return status.model_copy(
            update={
                "chosen": before.chosen,
                "realised": before.realised,
                "saving_percent": before.saving_percent,
                "slowdown_percent": before.slowdown_percent,
            }
        )
    return _with_chosen(state, status)


def _with_chosen(state: PipelineState, status: FrequencyPlanStatus) -> FrequencyPlanStatus:
    frontier, chosen = state.frontier, chosen_point(state)
    if frontier is None or chosen is None:
        return status
    found, point, straggler = measured(state), frontier.points[chosen], state.straggler
    seconds = None if straggler is None or not _beside_straggler(state) else rounded(straggler.iteration_seconds)
    return status.model_copy(
        update={
            "chosen": ChosenPlan(
                point=chosen,
                time_seconds=rounded(point.time_seconds),
                energy_joules=rounded(point.energy_joules),
                straggler_seconds=seconds,
                reason=state.directive.reason[:MAX_REASON_CHARACTERS],
            ),
            "realised": None if found is None else _realised(found),
            "saving_percent": _optional(saving_percent(state, found)),
            "slowdown_percent": _optional(slowdown_percent(state, found)),
        }
    )


def applied_plan(state: PipelineState, name: str) -> AppliedFrequencyPlan:
    """What the TrainingRecurrence says of its plan.

    Args:
        state: The pipeline; its measurements are not needed.
        name: Name of the FrequencyPlan; empty until there is one.
    """
    found, frontier, chosen = measured(state), state.frontier, chosen_point(state)
    return AppliedFrequencyPlan(
        name=name,
        mode=state.directive.mode,
        point=chosen,
        planned=None if frontier is None or chosen is None else _iteration(frontier.points[chosen]),
        realised=None if found is None else _applied_iteration(found),
        saving_percent=_optional(saving_percent(state, found), APPLIED_DIGITS),
        slowdown_percent=_optional(slowdown_percent(state, found), APPLIED_DIGITS),
        reason=state.directive.reason[:MAX_REASON_CHARACTERS],
        problem="" if frontier is None else frontier.problem[:MAX_REASON_CHARACTERS],
    )


def saving_percent(state: PipelineState, found: Measured | None) -> float | None:
    """Energy saved against maximum clocks, in percent; None without a plan or without the energy of maximum clocks.

    What an iteration took beyond its plan, such as the optimizer's step, counts at maximum clocks, too. While a
    pipeline waits for a straggler, both sides wait as long.
    """
    frontier, chosen = state.frontier, chosen_point(state)
    if frontier is None or chosen is None or frontier.highest_clocks is None:
        return None
    point, highest = frontier.points[chosen], frontier.highest_clocks
    planned, base = point.energy_joules, highest.energy_joules
    if _beside_straggler(state):
        until = max(point.time_seconds, highest.time_seconds)
        waiting_watts = frontier.blocking_watts * len(point.clocks_megahertz)
        planned += waiting_watts * (until - point.time_seconds)
        base += waiting_watts * (until - highest.time_seconds)
    beyond = 0.0 if found is None or found.energy_joules is None else max(found.energy_joules - planned, 0.0)
    return 100 * (base - planned) / (base + beyond) if base > 0 else None


def slowdown_percent(state: PipelineState, found: Measured | None) -> float | None:
    """Time lost against maximum clocks, in percent; None without a plan, and beside a straggler, which takes the time.

    What an iteration took beyond its plan counts at maximum clocks, too.
    """
    frontier, chosen = state.frontier, chosen_point(state)
    if frontier is None or chosen is None or frontier.highest_clocks is None or _beside_straggler(state):
        return None
    planned, base = frontier.points[chosen].time_seconds, frontier.highest_clocks.time_seconds
    beyond = 0.0 if found is None else max(found.time_seconds - planned, 0.0)
    return 100 * (planned - base) / (base + beyond) if base > 0 else None


def chosen_point(state: PipelineState) -> int | None:
    """The point of the present directive; None if it runs no plan of the present frontier."""
    directive, frontier = state.directive, state.frontier
    if directive.mode != PLAN or frontier is None or directive.profile_digest != frontier.profile_digest:
        return None
    point = directive.point if directive.straggler_point is None else directive.straggler_point
    return point if point is not None and point < len(frontier.points) else None


def rounded(value: float, digits: int = SIGNIFICANT_DIGITS) -> Decimal:
    """A decimal with the digits that a status states.

    Example:
        >>> rounded(12.3456789), rounded(-0.0)
        (Decimal('12.346'), Decimal('0'))
    """
    return to_decimal(float(f"{value + 0.0:.{digits}g}"))


def _optional(value: float | None, digits: int = SIGNIFICANT_DIGITS) -> Decimal | None:
    return None if value is None else rounded(value, digits)


def _beside_straggler(state: PipelineState) -> bool:
    return state.directive.straggler_point is not None


def _iteration(point: FrontierPoint) -> IterationStatus:
    return IterationStatus(time_seconds=rounded(point.time_seconds), energy_joules=rounded(point.energy_joules))


def _shown_points(frontier: PipelineFrontier) -> tuple[IterationStatus, ...]:
    # Deferred: the operator is ready before it imports NumPy.
    from wattloop_planner.frequency.files.archive import evenly  # noqa: PLC0415

    return tuple(map(_iteration, evenly(frontier.points, MAX_FRONTIER_POINTS)))


def _realised(found: Measured) -> RealisedPlan:
    return RealisedPlan(
        time_seconds=rounded(found.time_seconds),
        energy_joules=_optional(found.energy_joules),
        energy_error_joules=_optional(found.energy_error_joules, ERROR_DIGITS),
        iterations=found.iterations,
    )


def _applied_iteration(found: Measured) -> RealisedIteration:
    return RealisedIteration(
        time_seconds=rounded(found.time_seconds, APPLIED_DIGITS),
        energy_joules=_optional(found.energy_joules, APPLIED_DIGITS),
    )


def _conditions(
    state: PipelineState, before: Sequence[Condition], *, ended: bool, now: datetime
) -> Iterator[Condition]:
    def found(kind: str, holds: bool, reason: str, message: str) -> Condition:
        return condition(before, kind, holds=holds, reason=reason, message=message, now=now)

    dead = () if ended else silent_ranks(state, now)
    different = [] if ended else [rank for _, rank in sorted(state.ranks.items()) if rank.mismatch]
    yield found(PLANNED, *_planned(state.frontier))
    yield found(IN_FORCE, *_in_force(state, dead, different, ended=ended))
    seconds = silence_timeout(state.expected_ranks).total_seconds()
    silent = f"{named(dead)} sent no report for {seconds:g} s" if dead else ""
    yield found(RANK_DEAD, bool(dead), "NoReport" if dead else "AllReport", silent)
    mismatch = _mismatch(different) if different else ""
    yield found(MISMATCH, bool(different), "OtherInstructions" if different else "AsRegistered", mismatch)


def _planned(frontier: PipelineFrontier | None) -> tuple[bool, str, str]:
    if frontier is None:
        return False, "NotProfiled", "the profile is not complete"
    if frontier.problem or not frontier.points:
        return False, "NoPlan", frontier.problem
    return True, "Planned", ". ".join((f"{len(frontier.points)} plans", *frontier.notes))


def _mismatch(different: Sequence[PipelineRank]) -> str:
    numbers = tuple(rank.registration.rank for rank in different)
    return f"{named(numbers)}: {different[0].mismatch}"


def _in_force(
    state: PipelineState, dead: tuple[int, ...], different: Sequence[PipelineRank], *, ended: bool
) -> tuple[bool, str, str]:
    directive = state.directive
    if ended:
        return False, "Ended", f"TrainingRecurrence {state.name} has ended"
    if dead:
        return False, "RankDead", f"{named(dead)} sent no report; the others run at free clocks"
    if directive.mode != PLAN:
        return False, "FreeClocks" if directive.mode == FREE else "Profiling", directive.reason
    if directive.first_iteration is None:
        waiting = tuple(n for n, rank in sorted(state.ranks.items()) if rank.acknowledged < directive.number)
        return False, "Announced", f"{named(waiting)} have not received it yet" if waiting else ""
    if different:
        return False, "Mismatch", f"{_mismatch(different)}; free clocks there"
    return True, "Running", directive.reason
