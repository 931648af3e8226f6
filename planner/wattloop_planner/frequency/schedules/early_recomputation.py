"""1F1B with early recomputation, as Merak runs it (Lai et al. 2023, and Lowtime's `EarlyRecomputation1F1B`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wattloop_planner.frequency.schedules.schedule import (
    BACKWARD,
    FORWARD,
    FORWARD_BACKWARD,
    RECOMPUTATION,
    Schedule,
    StageOrder,
    alternating,
    single_chunk,
)


@dataclass(frozen=True)
class EarlyRecomputation(Schedule):
    """Activations are computed again for the backward pass.

    While forwards remain, recomputation and backward are one operation, ``forwardbackward``. In the last backwards a
    stage waits for its successor anyway, so it recomputes in that time: ``recomputation``, then ``backward``.
    """

    instructions: ClassVar[tuple[str, ...]] = (FORWARD, BACKWARD, RECOMPUTATION, FORWARD_BACKWARD)

    @property
    def operations(self) -> int:
        """How many operations an iteration has, at most."""
        return (2 * self.microbatches + self.stages) * self.stages

    def stage_order(self, stage: int) -> StageOrder:
        """The operations of this stage in execution order."""
        warmup = min(self.stages - stage - 1, self.microbatches)
        kinds, numbers = alternating(warmup, self.microbatches, (0, 3))
        last = len(kinds) - warmup
        cooldown = np.repeat(numbers[last:], 2)
        return single_chunk(
            np.concatenate([kinds[:last], np.tile([2, 1], warmup)]), np.concatenate([numbers[:last], cooldown])
        )
