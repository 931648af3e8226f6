"""One line on what an ended attempt's pipeline planned, and what it realised."""

from __future__ import annotations

from wattloop.pipeline.plan_messages import PLAN, PROFILE
from wattloop.pipeline.standard_errors import NORMAL_95
from wattloop_operator.domain.quantities import NOT_KNOWN_YET
from wattloop_operator.reconcile.pipeline.measured_excess import MIN_GROUPS, Comparison, compared
from wattloop_operator.reconcile.pipeline.pipeline_state import Excess, FrontierPoint, PipelineState
from wattloop_operator.reconcile.pipeline.saving import Measured, chosen_point, measured, planned_saving_percent
from wattloop_operator.reconcile.pipeline.withdrawal import present_withdrawal


def pipeline_summary(state: PipelineState) -> str:
    """What the pipeline of an ended attempt ran, for a person.

    Example:
        >>> from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey
        >>> state = PipelineState(key=PipelineKey("a1", 0, 0), namespace="default", name="gpt-0")
        >>> pipeline_summary(state)
        'no frequency plan: not all ranks have registered'
    """
    directive, frontier = state.directive, state.frontier
    if directive.mode == PROFILE:
        return "no frequency plan yet: the instructions were measured, and the next run continues"
    chosen = chosen_point(state)
    if directive.mode != PLAN or frontier is None or chosen is None:
        return f"no frequency plan: {directive.reason or 'not all ranks have registered'}"
    found = measured(state)
    parts = [f"a frequency plan, planned {_iteration(frontier.points[chosen])}"]
    if frontier.highest_clocks is not None:
        parts.append(f"maximum clocks {_iteration(frontier.highest_clocks)}")
    parts.append("realised " + ("nothing that was measured" if found is None else _realised(found)))
    parts.append(_saving(state))
    if (withdrawn := present_withdrawal(state)) is not None:
        parts.append(withdrawn.reason)
    return "; ".join(parts)


def _saving(state: PipelineState) -> str:
    """What the plan saved and cost in time, by measurement, and beside it what was planned."""
    comparison, planned = compared(state), planned_saving_percent(state)
    energy, time = (None, None) if comparison is None else (comparison.energy, comparison.time)
    beside = "" if planned is None else f" (planned: {planned:.1f} %)"
    if energy is None:
        return f"saving {NOT_KNOWN_YET}{beside}{_lacking(state, comparison)}"
    text = f"{-energy.percent:.1f} %{_interval(energy)} of the energy saved{beside}"
    return text if time is None else f"{text} for {time.percent:+.1f} %{_interval(time)} time, against free clocks"


def _lacking(state: PipelineState, comparison: Comparison | None) -> str:
    """What there is too little of, for the saving to be known; empty if nothing is compared."""
    if state.directive.free is None:
        return ""
    blocks = 0 if comparison is None else len(comparison.groups)
    if blocks < MIN_GROUPS:
        return f", {blocks} of at least {MIN_GROUPS} blocks of iterations at free clocks are measured"
    return ", the energy of the iterations is not known"


def _interval(each: Excess) -> str:
    return f" (± {NORMAL_95 * each.error_percent:.2g})"


def _realised(found: Measured) -> str:
    error = found.energy_error_joules
    interval = "" if error is None else f" (± {NORMAL_95 * error:.1f} J)"
    return _iteration(found) + interval


def _iteration(each: FrontierPoint | Measured) -> str:
    energy = "" if each.energy_joules is None else f" and {each.energy_joules:,.1f} J"
    return f"{each.time_seconds:.4g} s{energy} per iteration"
