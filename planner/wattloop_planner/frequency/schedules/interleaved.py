"""Interleaved 1F1B: a stage holds several chunks of the model (Narayanan et al. 2021, section 2.2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattloop.errors import UsageError
from wattloop_planner.frequency.schedules.schedule import Schedule, StageOrder, alternating


@dataclass(frozen=True)
class Interleaved(Schedule):
    """Chunk c of stage s is the part c·stages + s of the model; groups of `stages` microbatches take turns on a chunk.

    As in Megatron-LM, a stage runs ahead by ``2·(stages - stage - 1) + (chunks - 1)·stages`` forwards. One chunk a
    stage is plain 1F1B. A profile's rows hold for one chunk's part of an instruction.
    """

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            UsageError: The microbatches are no multiple of the stages.
        """
        super().__post_init__()
        if self.chunks > 1 and self.microbatches % self.stages:
            raise UsageError(
                f"--schedule interleaved: --microbatches {self.microbatches} must be a multiple "
                f"of --stages {self.stages}"
            )

    @property
    def period(self) -> int:
        """After how many microbatches the order of a long iteration repeats."""
        return self.stages if self.chunks > 1 else 1

    def stage_order(self, stage: int) -> StageOrder:
        """The operations of this stage in execution order."""
        count = self.microbatches * self.chunks
        ahead = self.stages - stage - 1
        if self.chunks > 1:
            ahead = 2 * ahead + (self.chunks - 1) * self.stages
        kinds, numbers = alternating(min(ahead, count), count, (0, 1))
        group, within = np.divmod(numbers, self.stages * self.chunks)
        forward_chunks, place = np.divmod(within, self.stages)
        if self.chunks == 1:
            return StageOrder(kinds, numbers, np.zeros_like(numbers))
        chunks = np.where(kinds == 0, forward_chunks, self.chunks - 1 - forward_chunks)
        microbatches = group * self.stages + place
        return StageOrder(kinds, microbatches.astype(np.int32), chunks.astype(np.int32))
