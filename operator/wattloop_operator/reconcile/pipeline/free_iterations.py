"""How many iterations of a plan run at free clocks, so that the plan is compared with them."""

from __future__ import annotations

import math

from wattloop.pipeline.free_iterations import MAX_CYCLE_ITERATIONS, WARM_UP_ITERATIONS, FreeIterations

# Energy counters step every 100 ms; the energy at the ends of a block is known to a fraction of a step.
BLOCK_SECONDS = 2.0
MIN_MEASURED_ITERATIONS, MAX_MEASURED_ITERATIONS = 2, 1_000
EARLY_CYCLES = 8
EARLY_SHARE, SHARE = 0.25, 0.03


def free_iterations(iteration_seconds: float) -> FreeIterations:
    """Which iterations run at free clocks: a quarter of the first ones, and later 3 of 100.

    Example:
        >>> free_iterations(0.4)
        FreeIterations(block=6, early_cycles=8, early_cycle=24, cycle=200)
    """
    wanted = math.ceil(BLOCK_SECONDS / iteration_seconds)
    block = WARM_UP_ITERATIONS + min(max(wanted, MIN_MEASURED_ITERATIONS), MAX_MEASURED_ITERATIONS)
    early, later = (min(math.ceil(block / share), MAX_CYCLE_ITERATIONS) for share in (EARLY_SHARE, SHARE))
    return FreeIterations(block, EARLY_CYCLES, early, later)
