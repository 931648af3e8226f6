"""How many iterations of a plan run at free clocks, so that the plan is compared with them.

The numbers follow from the measured time of an iteration: a block must be long enough for the energy counters, and
cycles that are longer than that make the comparison wait. They are part of the directive, so all ranks have the same.
"""

from __future__ import annotations

import math

from wattloop.pipeline.free_iterations import MAX_CYCLE_ITERATIONS, WARM_UP_ITERATIONS, FreeIterations
from wattloop.pipeline.plan_messages import PLAN
from wattloop_operator.reconcile.pipeline.liveness import MIN_ITERATION_SECONDS, slowest_iteration
from wattloop_operator.reconcile.pipeline.measured_excess import reports_of_plan
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineState

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
