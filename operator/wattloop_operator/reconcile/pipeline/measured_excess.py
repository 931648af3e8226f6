"""What a plan saves and costs in time by measurement: its iterations against those at free clocks between them.

docs/internals/pipeline-measurement.md has the reasons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wattloop.pipeline.free_iterations import (
    MAX_CYCLE_ITERATIONS,
    WARM_UP_ITERATIONS,
    ComparedCycles,
    FreeIterations,
    joined,
)
from wattloop.pipeline.plan_messages import PLAN, RankReport
from wattloop.pipeline.standard_errors import jackknife_variance, widening
from wattloop_operator.reconcile.pipeline.liveness import MIN_ITERATION_SECONDS, slowest_iteration
from wattloop_operator.reconcile.pipeline.pipeline_state import Excess, PipelineState

# With fewer groups, their differences do not say how sure the mean is.
MIN_GROUPS = 4
# Beyond these, a rank has stated no measurement.
MIN_VALUE, MAX_RATIO = 1e-9, 1e4
# Energy counters step every 100 ms; the energy at the ends of a block is known to a fraction of a step.
BLOCK_SECONDS = 2.0
MIN_MEASURED_ITERATIONS, MAX_MEASURED_ITERATIONS = 2, 1_000
EARLY_CYCLES = 8
EARLY_SHARE, SHARE = 0.25, 0.03
# Blocks of so many times the right number of iterations, or fewer by this factor, are far off. Between, the cycles
# that are measured already are worth more than blocks of the right length.
FAR_OFF = 2.0
# One iteration may take long for any reason.
MIN_TIMED_ITERATIONS = 4


@dataclass(frozen=True)
class Comparison:
    """Iterations under the present plan and at free clocks.

    Attributes:
        groups: Groups of cycles that all ranks have measured, in order: of one pipeline, the times of its slowest
            rank, and the energies as means over the pipelines, None until all ranks know them.
    """

    groups: tuple[ComparedCycles, ...]

    @property
    def cycles(self) -> int:
        """Number of measured cycles."""
        return sum(each.cycles for each in self.groups)

    @property
    def free_seconds(self) -> float:
        """Mean time of an iteration at free clocks."""
        return math.fsum(each.free_seconds for each in self.groups) / self.cycles

    @property
    def free_joules(self) -> float | None:
        """Mean energy of an iteration of one pipeline at free clocks; None if no group has one."""
        known = [each for each in self.groups if each.free_joules is not None]
        cycles = sum(each.cycles for each in known)
        return math.fsum(each.free_joules or 0.0 for each in known) / cycles if cycles else None

    @property
    def time(self) -> Excess | None:
        """Time under the plan beyond that at free clocks; None while it is not known."""
        return excess([each.plan_seconds for each in self.groups], [each.free_seconds for each in self.groups])

    @property
    def energy(self) -> Excess | None:
        """Energy under the plan beyond that at free clocks; None while it is not known."""
        return self.cost(1.0, 0.0)

    def cost(self, energy_weight: float, watts: float) -> Excess | None:
        """Cost under the plan beyond that at free clocks; None while it is not known.

        Args:
            energy_weight: η: the share of the energy.
            watts: What a second costs, of which the rest is the share.
        """
        both = [
            (
                energy_weight * each.plan_joules + (1 - energy_weight) * watts * each.plan_seconds,
                energy_weight * each.free_joules + (1 - energy_weight) * watts * each.free_seconds,
            )
            for each in self.groups
            if each.plan_joules is not None and each.free_joules is not None
        ]
        return excess([plan for plan, _ in both], [free for _, free in both])


def excess(plan: Sequence[float], free: Sequence[float]) -> Excess | None:
    """How much more one side takes than the other, from the sums of groups; None for few groups.

    Example:
        >>> found = excess([0.9, 1.1, 1.0, 1.0], [1.0, 1.2, 1.1, 1.1])
        >>> round(found.percent, 2), round(found.error_percent, 2)
        (-9.09, 0.54)
        >>> excess([1.0], [1.0]) is None
        True
    """
    total_plan, total_free = math.fsum(plan), math.fsum(free)
    if len(plan) < MIN_GROUPS or min(free) < MIN_VALUE or max(plan) > MAX_RATIO * min(free):
        return None
    without = [(total_plan - own_plan) / (total_free - own_free) for own_plan, own_free in zip(plan, free, strict=True)]
    error = math.sqrt(jackknife_variance(without)) * widening(len(plan) - 1)
    return Excess(100 * (total_plan / total_free - 1), 100 * error)


def compared(state: PipelineState) -> Comparison | None:
    """The comparison under the present directive; None without one, and beside a straggler, for which others wait."""
    straggler = state.straggler
    if straggler is not None and straggler.noticed:
        return None
    reports = reports_of_plan(state)
    if reports is None or not all(report.compared for report in reports):
        return None
    width = max(each.width for report in reports for each in report.compared)
    by_rank = [joined(report.compared, width) for report in reports]
    pipelines = state.pipelines
    numbers = sorted(set(by_rank[0]).intersection(*by_rank[1:]))
    if not numbers:
        return None
    return Comparison(tuple(_group([each[number] for each in by_rank], pipelines) for number in numbers))


def reports_of_plan(state: PipelineState) -> list[RankReport] | None:
    """The newest report of each rank under the present plan; None if a rank has none."""
    directive = state.directive
    if directive.mode != PLAN or not state.ranks or len(state.ranks) != state.expected_ranks:
        return None
    reports = [
        rank.report
        for rank in state.ranks.values()
        if rank.report is not None and rank.report.applied_directive == directive.number
    ]
    return reports if len(reports) == len(state.ranks) else None


def _group(ranks: Sequence[ComparedCycles], pipelines: int) -> ComparedCycles:
    # A rank that lacks a cycle has the mean of the others.
    cycles = min(each.cycles for each in ranks)
    plan, free = ([getattr(each, name) for each in ranks] for name in ("plan_joules", "free_joules"))
    return replace(
        ranks[0],
        cycles=cycles,
        plan_seconds=max(each.plan_seconds / each.cycles for each in ranks) * cycles,
        free_seconds=max(each.free_seconds / each.cycles for each in ranks) * cycles,
        plan_joules=_total(ranks, plan, cycles / pipelines),
        free_joules=_total(ranks, free, cycles / pipelines),
    )


def _total(ranks: Sequence[ComparedCycles], joules: Sequence[float | None], factor: float) -> float | None:
    known = [value / each.cycles for each, value in zip(ranks, joules, strict=True) if value is not None]
    return math.fsum(known) * factor if len(known) == len(ranks) else None


def free_iterations(iteration_seconds: float) -> FreeIterations:
    """Which iterations run at free clocks: a quarter of the first ones, and later 3 of 100.

    Example:
        >>> free_iterations(0.4)
        FreeIterations(block=6, early_cycles=8, early_cycle=24, cycle=200)
    """
    wanted = math.ceil(BLOCK_SECONDS / max(iteration_seconds, MIN_ITERATION_SECONDS))
    block = WARM_UP_ITERATIONS + min(max(wanted, MIN_MEASURED_ITERATIONS), MAX_MEASURED_ITERATIONS)
    early, later = (min(math.ceil(block / share), MAX_CYCLE_ITERATIONS) for share in (EARLY_SHARE, SHARE))
    return FreeIterations(block, EARLY_CYCLES, early, later)


def free_iterations_of(state: PipelineState) -> FreeIterations:
    """Which iterations of a plan that is issued now run at free clocks."""
    return free_iterations(_mean_under_plan(state) or slowest_iteration(state))


def have_other_length(state: PipelineState) -> bool:
    """Whether the blocks of the present plan have far more or fewer iterations than their measured time asks for.

    Such as after a compilation, or with another length of the data.
    """
    present, seconds = state.directive.free, _mean_under_plan(state)
    if present is None or seconds is None:
        return False
    ratio = (free_iterations(seconds).block - WARM_UP_ITERATIONS) / (present.block - WARM_UP_ITERATIONS)
    return not 1 / FAR_OFF < ratio < FAR_OFF


def _mean_under_plan(state: PipelineState) -> float | None:
    """Mean time of an iteration of the slowest rank under the present plan; None until some are measured."""
    if state.directive.mode != PLAN:
        return None
    reports = reports_of_plan(state) or []
    if not reports or min(report.measured_iterations for report in reports) < MIN_TIMED_ITERATIONS:
        return None
    return max(report.iteration_seconds or 0.0 for report in reports) or None
