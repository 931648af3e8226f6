"""Lightning's Trainer: its epochs and learning rates, reports, and the end at the target.

The validation loop runs at least once an epoch, since Wattloop compares batch sizes by their epochs.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from wattloop.errors import InputError
from wattloop.integrations.epoch_loop import EpochLoop
from wattloop.integrations.pytorch import multiply_learning_rates, samples_of
from wattloop.run.training_run import Run

logger = logging.getLogger("wattloop")

PLACE = "Lightning's Trainer"


class WattloopCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Reports each validation, and ends the training at the target or on request of the operator.

    It sets the Trainer's `max_epochs`, and multiplies the learning rates of the optimizers and their
    schedulers. A checkpoint keeps the factor, so that a restored training is not scaled twice.

    Args:
        run: The run. If it has not begun, the training begins it and ends it.
        metric: Name of the metric that the module logs, with or without ``val_``; default: that of the
            job's target, or outside Wattloop ``loss``.
        scale_learning_rates: Whether to multiply the learning rates by the run's factor.

    Raises:
        InputError: The Trainer has no validation in an epoch, its length is given in steps, or the
            validation logs no such metric.
        UsageError: `run` is no run, has been used before, or `metric` is no name.
    """

    def __init__(self, run: Run, metric: str | None = None, *, scale_learning_rates: bool = True) -> None:
        self._loop = EpochLoop(run, metric, prefix="val_", source="Lightning's validation")
        self._scales = scale_learning_rates
        self._factor = 1.0
        self._validated: dict[str, Any] | None = None
        self._samples = 0
        self._global_step = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See `Callback`: set the number of epochs."""
        if trainer.max_steps != -1:
            expected = "max_epochs: the same number of steps is another amount of data with each batch size"
            raise InputError(PLACE, f"max_steps={trainer.max_steps}", expected)
        environment = self._loop.run.environment
        if environment.managed and trainer.world_size != environment.ranks:
            # Processes that Lightning itself starts begin after the run, and have no rank of their own.
            raise InputError(
                PLACE,
                f"{trainer.world_size} processes, of which Wattloop knows {environment.ranks}",
                "that torchrun starts the script once for each process, and that devices and num_nodes are theirs",
            )
        trainer.fit_loop.max_epochs = self._loop.run.max_epochs

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See `Callback`: begin the run, after a checkpoint is restored."""
        self._loop.begin()
        self._warn_of_another_batch_size(trainer)
        self._global_step, self._samples = trainer.global_step, 0
        factor = self._loop.run.learning_rate_scale if self._scales else 1.0
        if factor != self._factor:
            for optimizer in trainer.optimizers:
                multiply_learning_rates(optimizer, factor / self._factor)
            for configuration in trainer.lr_scheduler_configs:
                _multiply_first_rates(configuration.scheduler, factor / self._factor)
            self._factor = factor

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """See `Callback`: count the samples of an optimizer step, which may have several batches."""
        run = self._loop.run
        self._samples += (samples_of(batch) or run.per_device_batch_size) * trainer.world_size
        if trainer.global_step != self._global_step:
            run.step(self._samples)
            self._global_step, self._samples = trainer.global_step, 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See `Callback`: keep the newest metrics of the epoch. Those before the training do not count."""
        if self._loop.is_open and not trainer.sanity_checking:
            self._validated = dict(trainer.callback_metrics)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See `Callback`: report the last validation of the epoch."""
        validated, self._validated = self._validated, None
        if validated is not None:
            self._loop.report(validated)
        elif trainer.check_val_every_n_epoch == 1:
            raise InputError(PLACE, "no validation in the epoch", f"one that logs {' or '.join(self._loop.names)}")
        # All processes leave the loop at the same epoch, even if one of them could not report.
        if trainer.strategy.reduce_boolean_decision(self._loop.end_epoch(), all=False):
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See `Callback`: end the run."""
        self._loop.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """See `Callback`: end the run without a final report of success."""
        self._loop.end(type(exception), exception, exception.__traceback__)

    def state_dict(self) -> dict[str, Any]:
        """See `Callback`: the factor that the learning rates of a checkpoint include."""
        return {"learning_rate_factor": self._factor}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See `Callback`: the restored learning rates include this factor."""
        self._factor = float(state_dict["learning_rate_factor"])

    def _warn_of_another_batch_size(self, trainer: Trainer) -> None:
        batch_size = getattr(trainer.train_dataloader, "batch_size", None)
        parts = trainer.accumulate_grad_batches * trainer.world_size
        wanted = self._loop.run.batch_size
        # A batch that does not divide is rounded down by less than one sample for each part.
        if batch_size is not None and not wanted - parts < batch_size * parts <= max(wanted, parts):
            logger.warning(
                "the data loader and accumulation give a batch of %d samples, but the run's is %d; "
                "use run.per_device_batch_size or micro_batches(run) for the data loader",
                batch_size * parts,
                wanted,
            )


def _multiply_first_rates(scheduler: Any, factor: float) -> None:
    """Multiply the learning rates from which a scheduler computes all later ones."""
    if isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler) and hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]
    for inner in getattr(scheduler, "_schedulers", ()):
        _multiply_first_rates(inner, factor)
