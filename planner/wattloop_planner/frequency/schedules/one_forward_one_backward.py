"""1F1B: one forward, one backward (PipeDream-Flush; Narayanan et al. 2021, "Efficient Large-Scale …", figure 4)."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop_planner.frequency.schedules.schedule import Schedule, StageOrder, alternating, single_chunk


@dataclass(frozen=True)
class OneForwardOneBackward(Schedule):
    """A stage runs ahead by as many forwards as stages follow it, then alternates; at most that + 1 are in flight."""

    def stage_order(self, stage: int) -> StageOrder:
        """The operations of this stage in execution order."""
        warmup = min(self.stages - stage - 1, self.microbatches)
        return single_chunk(*alternating(warmup, self.microbatches, (0, 1)))
