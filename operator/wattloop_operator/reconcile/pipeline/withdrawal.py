"""Withdraws a plan that is measured to cost more than it saves."""

from dataclasses import replace

from wattloop.pipeline.plan_messages import PLAN
from wattloop.pipeline.standard_errors import NORMAL_95
from wattloop_operator.api.power_fields import PlanChoiceRule
from wattloop_operator.reconcile.pipeline.measured_excess import Comparison, compared
from wattloop_operator.reconcile.pipeline.pipeline_state import Excess, PipelineState, WithdrawnPoint

# A plan that costs as much as free clocks is withdrawn in 2 of 100 trainings of 200 cycles, although each cycle
# is looked at (tests/operator/reconcile/pipeline/test_withdrawal.py).
MIN_CYCLES = 6
STANDARD_ERRORS = 4.0


def with_withdrawn_plan(state: PipelineState) -> PipelineState:
    """The state with the present plan withdrawn, if its iterations cost more than those at free clocks.

    The cost is that of the job: energy and time by its η. With choice Deadline, which allows the plan to take longer,
    it is the energy. It is looked at once for each cycle that all ranks have measured.
    """
    directive, frontier = state.directive, state.running_frontier
    if directive.free is None or directive.point is None or frontier is None:
        return state
    cycles = _measured_cycles(state)
    if cycles <= directive.compared_cycles:
        return state
    state = replace(state, directive=replace(directive, compared_cycles=cycles))
    found = compared(state)
    if found is None or found.cycles < MIN_CYCLES:
        return state
    cost = _cost(state, found)
    if cost is None or cost.percent <= STANDARD_ERRORS * cost.error_percent:
        return state
    withdrawn = WithdrawnPoint(
        directive.point, _reason(state, found, cost), state.name, time=found.time, energy=found.energy
    )
    return replace(state, frontier=replace(frontier, withdrawn=(*frontier.withdrawn, withdrawn)))


def _measured_cycles(state: PipelineState) -> int:
    """Number of cycles that each rank has measured, roughly; 0 before."""
    newest = [
        rank.report.compared[-1] if rank.report is not None and rank.report.compared else None
        for rank in state.ranks.values()
    ]
    return min((0 if each is None else each.group * each.width + each.cycles for each in newest), default=0)


def _cost(state: PipelineState, found: Comparison) -> Excess | None:
    choice, joules = state.job_plan.choice, found.free_joules
    if joules is None:
        return found.time if choice.mode != PlanChoiceRule.DEADLINE else None
    if choice.mode == PlanChoiceRule.DEADLINE:
        return found.energy
    if found.time is None:
        # Too few blocks, or times that no iteration has, as a rank may state them.
        return None
    pipelines = state.pipelines
    # As long as the maximum power is not known, a second costs what it does at free clocks.
    watts = choice.max_power_watts / pipelines or joules / found.free_seconds
    return found.cost(choice.energy_weight, watts)


def present_withdrawal(state: PipelineState) -> WithdrawnPoint | None:
    """The plan that this attempt has withdrawn, or an earlier one, so that its ranks run at free clocks.

    None while they run another plan or none for another reason.
    """
    directive, frontier = state.directive, state.frontier
    if frontier is None:
        return None
    if directive.mode == PLAN:
        # Withdrawn by the last report: the ranks ended under the plan.
        running = state.running_frontier
        return None if running is None or directive.point is None else running.withdrawal(directive.point)
    return next((each for each in frontier.withdrawn if each.reason == directive.reason), None)


def own_withdrawal(state: PipelineState) -> WithdrawnPoint | None:
    """The same, if this attempt has measured it."""
    found = present_withdrawal(state)
    return found if found is not None and found.recurrence == state.name else None


def _reason(state: PipelineState, found: Comparison, cost: Excess) -> str:
    parts = [
        f"{each.percent:+.1f} % (± {NORMAL_95 * each.error_percent:.2g}) {what}"
        for each, what in ((found.time, "time"), (found.energy, "energy"), (cost, "cost"))
        if each is not None
    ]
    given = state.job_plan.given
    next_step = (
        "if the model or its partition has changed, give it a new name in Pipeline(model=…), and it is measured again"
        if given is None
        else f"name another FrequencyPlan than {given.name}, or none, and the operator plans"
    )
    return (
        f"the plan is withdrawn, because it costs more than it saves: an iteration takes {', '.join(parts)} "
        f"compared with free clocks, measured in {found.cycles} blocks of iterations of {state.name}; the GPUs run at "
        f"free clocks; {next_step}"
    )
