"""GPipe: all forwards, then all backwards (Huang et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop_planner.frequency.schedules.schedule import Schedule, StageOrder, alternating, single_chunk


@dataclass(frozen=True)
class GPipe(Schedule):
    """Every microbatch is in flight at once; backwards go in the order of the forwards, as PyTorch's ScheduleGPipe."""

    def stage_order(self, stage: int) -> StageOrder:  # noqa: ARG002 - every stage has the same order
        """The operations of this stage in execution order."""
        return single_chunk(*alternating(self.microbatches, self.microbatches, (0, 1)))
