"""What a pipeline has measured under its plan, and what the plan would save and lose by the profile.

What it saves by measurement is in `wattloop_operator.reconcile.pipeline.measured_excess`. The summary of an ended
attempt has both in one line.
"""

import math
from dataclasses import dataclass

from wattloop.pipeline.plan_messages import PLAN, PROFILE
from wattloop.pipeline.standard_errors import NORMAL_95
from wattloop_operator.domain.quantities import NOT_KNOWN_YET
from wattloop_operator.reconcile.pipeline.measured_excess import MIN_GROUPS, Comparison, compared, reports_of_plan
from wattloop_operator.reconcile.pipeline.pipeline_state import Excess, FrontierPoint, PipelineState
from wattloop_operator.reconcile.pipeline.withdrawal import present_withdrawal


@dataclass(frozen=True)
class Measured:
    """What the ranks measured under the present directive.

    Attributes:
        time_seconds: Time of an iteration of the slowest rank.
        energy_joules: Energy of an iteration, the mean over the pipelines; None until all ranks report it.
        energy_error_joules: Standard error of the energy; None until all ranks report theirs.
    """

    time_seconds: float
    energy_joules: float | None
    energy_error_joules: float | None = None


def measured(state: PipelineState) -> Measured | None:
    """What the ranks measured under the present plan; None until each of them has reported an iteration."""
    present = reports_of_plan(state)
    if present is None or not all(report.measured_iterations and report.iteration_seconds for report in present):
        return None
    energies = [report.iteration_joules for report in present if report.iteration_joules is not None]
    errors = [report.iteration_error_joules for report in present if report.iteration_error_joules is not None]
    pipelines = state.pipelines
    return Measured(
        max(report.iteration_seconds or 0.0 for report in present),
        sum(energies) / pipelines if len(energies) == len(present) else None,
        # Each rank reads counters of its own.
        math.hypot(*errors) / pipelines if len(errors) == len(present) else None,
    )


def running_point(state: PipelineState) -> int | None:
    """The point of the present directive; None if it runs no plan of the present frontier."""
    directive = state.directive
    if state.running_frontier is None:
        return None
    return directive.point if directive.straggler_point is None else directive.straggler_point


def planned_saving_percent(state: PipelineState) -> float | None:
    """Energy that the plan saves against maximum clocks by the profile; None without a plan or that energy.

    While a pipeline waits for a straggler, both sides wait as long.
    """
    frontier, found = state.frontier, _planned_points(state)
    if frontier is None or found is None:
        return None
    point, highest = found
    planned, base = point.energy_joules, highest.energy_joules
    if state.directive.straggler_point is not None:
        until = max(point.time_seconds, highest.time_seconds)
        waiting_watts = frontier.blocking_watts * len(point.clocks_megahertz)
        planned += waiting_watts * (until - point.time_seconds)
        base += waiting_watts * (until - highest.time_seconds)
    return 100 * (base - planned) / base if base > 0 else None


def planned_slowdown_percent(state: PipelineState) -> float | None:
    """Time that the plan loses against maximum clocks by the profile; None without a plan, and beside a straggler."""
    found = _planned_points(state)
    if found is None or state.directive.straggler_point is not None:
        return None
    point, highest = found
    return 100 * (point.time_seconds / highest.time_seconds - 1)


def _planned_points(state: PipelineState) -> tuple[FrontierPoint, FrontierPoint] | None:
    """The present plan, and maximum clocks."""
    frontier, chosen = state.frontier, running_point(state)
    if frontier is None or chosen is None or frontier.highest_clocks is None:
        return None
    return None if frontier.highest_clocks.time_seconds <= 0 else (frontier.points[chosen], frontier.highest_clocks)


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
    chosen = running_point(state)
    if directive.mode != PLAN or frontier is None or chosen is None:
        return f"no frequency plan: {directive.reason or 'not all ranks have registered'}"
    found = measured(state)
    parts = [f"a frequency plan, planned {_iteration(frontier.points[chosen])}"]
    if frontier.highest_clocks is not None:
        parts.append(f"maximum clocks {_iteration(frontier.highest_clocks)}")
    error = None if found is None else found.energy_error_joules
    interval = "" if error is None else f" (± {NORMAL_95 * error:.1f} J)"
    parts.append("realised " + ("nothing that was measured" if found is None else _iteration(found) + interval))
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


def _iteration(each: FrontierPoint | Measured) -> str:
    energy = "" if each.energy_joules is None else f" and {each.energy_joules:,.1f} J"
    return f"{each.time_seconds:.4g} s{energy} per iteration"
