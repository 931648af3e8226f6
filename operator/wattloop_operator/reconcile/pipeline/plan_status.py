"""The status of a FrequencyPlan, from the state of the pipeline that runs it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from wattloop.pipeline.plan_messages import FREE, PLAN
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.frequency_plan import FrequencyPlan, FrequencyPlanStatus
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.power_fields import AppliedFrequencyPlan
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.reconcile.conditions import condition
from wattloop_operator.reconcile.pipeline.liveness import named, silence_timeout, silent_ranks
from wattloop_operator.reconcile.pipeline.measured_excess import Comparison, compared
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    PipelineFrontier,
    PipelineRank,
    PipelineState,
    WithdrawnPoint,
)
from wattloop_operator.reconcile.pipeline.saving import (
    measured,
    planned_saving_percent,
    planned_slowdown_percent,
    running_point,
)
from wattloop_operator.reconcile.pipeline.withdrawal import own_withdrawal, present_withdrawal

PLANNED, IN_FORCE, RANK_DEAD, MISMATCH = "Planned", "InForce", "RankDead", "Mismatch"
# Measured values change with every report; each change is a write to etcd.
SIGNIFICANT_DIGITS = 5
ERROR_DIGITS = 2
# Of the recurrence and the job, whose objects other controllers watch too, so that they change rarely.
APPLIED_DIGITS = 3
MAX_REASON_CHARACTERS = 512
# What the status says of the chosen plan.
OF_CHOSEN = (
    "planned_seconds",
    "planned_joules",
    "reason",
    "realised_seconds",
    "realised_joules",
    "saving_percent",
    "slowdown_percent",
    "saving_error_percent",
    "slowdown_error_percent",
    "planned_saving_percent",
    "planned_slowdown_percent",
)


def plan_status(state: PipelineState, plan: FrequencyPlan, *, ended: bool, now: datetime) -> FrequencyPlanStatus:
    """The status of the plan that a pipeline runs or waits for.

    Args:
        state: The pipeline; its measurements are not needed.
        plan: The FrequencyPlan as it was read.
        ended: Whether the attempt has ended. What it realised then stays.
        now: The time, with a time zone.
    """
    before = plan.status
    status = FrequencyPlanStatus(
        conditions=tuple(_conditions(state, before.conditions, ended=ended, now=now)), recurrence=state.name
    )
    if before.recurrence == state.name and (ended or running_point(state) is None):
        kept = {name: getattr(before, name) for name in OF_CHOSEN}
        # What was last written is older than the decision.
        return status.model_copy(update=kept | _of_withdrawal(state, SIGNIFICANT_DIGITS))
    return _with_chosen(state, status)


def _with_chosen(state: PipelineState, status: FrequencyPlanStatus) -> FrequencyPlanStatus:
    frontier, chosen = state.frontier, running_point(state)
    if frontier is None or chosen is None:
        return status
    found, point = measured(state), frontier.points[chosen]
    return status.model_copy(
        update={
            "planned_seconds": rounded(point.time_seconds),
            "planned_joules": rounded(point.energy_joules),
            "reason": state.directive.reason[:MAX_REASON_CHARACTERS],
            "realised_seconds": None if found is None else rounded(found.time_seconds),
            "realised_joules": None if found is None else _optional(found.energy_joules),
            **_percentages(compared(state), SIGNIFICANT_DIGITS),
            "planned_saving_percent": _optional(planned_saving_percent(state)),
            "planned_slowdown_percent": _optional(planned_slowdown_percent(state)),
        }
    )


def applied_plan(state: PipelineState, name: str) -> AppliedFrequencyPlan:
    """What the TrainingRecurrence says of its plan.

    Args:
        state: The pipeline; its measurements are not needed.
        name: Name of the FrequencyPlan; empty until there is one.
    """
    withdrawn = present_withdrawal(state)
    problem = "" if state.frontier is None else state.frontier.problem
    return AppliedFrequencyPlan(
        name=name,
        mode=state.directive.mode,
        **(_percentages(compared(state), APPLIED_DIGITS) | _of_withdrawal(state, APPLIED_DIGITS)),
        reason=state.directive.reason[:MAX_REASON_CHARACTERS],
        problem=(problem if withdrawn is None else withdrawn.reason)[:MAX_REASON_CHARACTERS],
    )


def with_iterations(result: PipelineResult, state: PipelineState) -> PipelineResult:
    """The result of an attempt's pipeline with the planned and the realised iteration.

    Args:
        result: What the status of the attempt has of it.
        state: The pipeline; its measurements are not needed.
    """
    found, frontier, chosen = measured(state), state.frontier, running_point(state)
    point = None if frontier is None or chosen is None else frontier.points[chosen]
    return replace(
        result,
        planned_seconds=None if point is None else _shown(point.time_seconds),
        planned_joules=None if point is None else _shown(point.energy_joules),
        realised_seconds=None if found is None else _shown(found.time_seconds),
        realised_joules=None if found is None else _shown(found.energy_joules),
        planned_saving_percent=_shown(planned_saving_percent(state)),
        planned_slowdown_percent=_shown(planned_slowdown_percent(state)),
    )


def _shown(value: float | None) -> float | None:
    return None if value is None else float(rounded(value))


def rounded(value: float, digits: int = SIGNIFICANT_DIGITS) -> Decimal:
    """A decimal with the digits that a status states.

    Example:
        >>> rounded(12.3456789), rounded(-0.0)
        (Decimal('12.346'), Decimal('0'))
    """
    return to_decimal(float(f"{value + 0.0:.{digits}g}"))


def _optional(value: float | None) -> Decimal | None:
    return None if value is None else rounded(value)


def _of_withdrawal(state: PipelineState, digits: int) -> dict[str, Decimal | None]:
    """What this attempt measured of the plan that it withdrew, by the name of the field; empty if it withdrew none."""
    withdrawn = own_withdrawal(state)
    return {} if withdrawn is None else _percentages(withdrawn, digits)


def _percentages(found: Comparison | WithdrawnPoint | None, digits: int) -> dict[str, Decimal | None]:
    """What the plan saves and costs in time by measurement, by the name of the field."""
    time, energy = (None, None) if found is None else (found.time, found.energy)
    return {
        "saving_percent": None if energy is None else rounded(-energy.percent, digits),
        "slowdown_percent": None if time is None else rounded(time.percent, digits),
        "saving_error_percent": None if energy is None else rounded(energy.error_percent, ERROR_DIGITS),
        "slowdown_error_percent": None if time is None else rounded(time.error_percent, ERROR_DIGITS),
    }


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
        free = "FreeClocks" if present_withdrawal(state) is None else "Withdrawn"
        return False, free if directive.mode == FREE else "Profiling", directive.reason
    if directive.first_iteration is None:
        waiting = tuple(n for n, rank in sorted(state.ranks.items()) if rank.acknowledged < directive.number)
        return False, "Announced", f"{named(waiting)} have not received it yet" if waiting else ""
    if different:
        return False, "Mismatch", f"{_mismatch(different)}; free clocks there"
    return True, "Running", directive.reason
