"""The power limit optimizer of Zeus as a callback of Hugging Face's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transformers import TrainerCallback

from wattloop_research.training.zeus_power_limit import GlobalPowerLimitOptimizer, OptimumSelector

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from wattloop.compat.zeus_windows import ZeusMonitor


class HFGlobalPowerLimitOptimizer(TrainerCallback):
    """`GlobalPowerLimitOptimizer` for ``Trainer(callbacks=[…])``, and for trainers that derive from it, as TRL's.

    The arguments are those of `GlobalPowerLimitOptimizer`.

    Attributes:
        optimizer: The optimizer.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        optimum_selector: OptimumSelector | None = None,
        wait_steps: int = 1,
        warmup_steps: int = 10,
        profile_steps: int = 40,
        pl_step: int = 25,
        profile_path: str | Path | None = None,
    ) -> None:
        self.optimizer = GlobalPowerLimitOptimizer(
            monitor, optimum_selector, wait_steps, warmup_steps, profile_steps, pl_step, profile_path
        )

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`."""
        self.optimizer.on_epoch_end()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`."""
        self.optimizer.on_step_begin()
