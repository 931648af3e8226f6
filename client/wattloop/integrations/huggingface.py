"""Hugging Face's Trainer: its batch size, epochs and learning rate, reports, and the end at the target.

The Trainer evaluates after each epoch, since Wattloop compares batch sizes by their epochs.
"""

from __future__ import annotations

import copy
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from wattloop.errors import InputError, UsageError
from wattloop.integrations.epoch_loop import EpochLoop, checked_run
from wattloop.printable import short_repr
from wattloop.run.micro_batches import micro_batches
from wattloop.run.power_limit_optimizer import PowerLimitOptimizer
from wattloop.run.training_run import Run

PLACE = "TrainingArguments"
# Seeds of NumPy, which the Trainer sets too, have 32 bits.
MAX_SEED = 2**32


def adapted(arguments: TrainingArguments, run: Run, *, max_per_device: int | None = None) -> TrainingArguments:
    """A copy of the arguments with the batch size, the epochs and the learning rate of a run.

    Args:
        arguments: The script's own. The learning rate is multiplied by the run's factor.
        run: The run.
        max_per_device: The most samples that fit into a device's memory; default: any number. A larger
            share of the batch is accumulated.

    Returns:
        A copy in which `per_device_train_batch_size` × `gradient_accumulation_steps` × devices is the
        run's batch size, rounded down to one that divides. Inside Wattloop it has the run's seed.

    Raises:
        InputError: An argument contradicts Wattloop's decisions.
        UsageError: An argument is of another type, or `max_per_device` is not a positive whole number.
    """
    checked_run(run)
    _check(arguments)
    devices = arguments.world_size * max(arguments.n_gpu, 1)
    parts = micro_batches(run.batch_size, devices, max_per_device)
    changed = copy.copy(arguments)
    changed.per_device_train_batch_size = parts.batch_size
    changed.gradient_accumulation_steps = parts.accumulation
    changed.num_train_epochs = run.max_epochs
    changed.learning_rate = arguments.learning_rate * run.learning_rate_scale
    if run.environment.seed is not None:
        changed.seed = run.seed % MAX_SEED
    return changed


class WattloopCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Reports each evaluation, and ends the training at the target or on request of the operator.

    Args:
        run: The run. If it has not begun, the training begins it and ends it.
        metric: Name of the metric, with or without ``eval_``; default: that of the job's target, or
            outside Wattloop ``loss``.

    Raises:
        InputError: The arguments do not evaluate after each epoch, or an evaluation has no such metric.
        UsageError: `run` is no run, has been used before, or `metric` is no name.
    """

    def __init__(self, run: Run, metric: str | None = None) -> None:
        self._loop = EpochLoop(run, metric, prefix="eval_", source="the Trainer's evaluation")
        self._steps = 0
        self._awaits_evaluation = False
        self._found: dict[str, Any] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`: begin the run."""
        _check(args)
        self._awaits_evaluation = False
        self._loop.begin()

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`: the previous epoch has reported its metric."""
        self._require_metric()
        self._steps = 0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """See `TrainerCallback`: count the samples of an optimizer step."""
        devices = args.world_size * max(args.n_gpu, 1)
        full = args.per_device_train_batch_size * args.gradient_accumulation_steps * devices
        left = _samples_of_epoch(others.get("train_dataloader")) - self._steps * full
        self._steps += 1
        self._loop.run.step(min(full, left) if left > 0 else full)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`: the epoch ends here if no evaluation follows (`eval_delay`)."""
        self._found = {}
        self._awaits_evaluation = control.should_evaluate
        if not self._awaits_evaluation:
            self._end_epoch(control)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any] | None = None,
        **others: object,
    ) -> None:
        """See `TrainerCallback`: report the epoch's evaluation. Evaluations by the script itself are left alone."""
        if not self._loop.is_open or not self._awaits_evaluation:
            return
        # With several data sets there is one call for each, of which one has the metric.
        self._found |= metrics or {}
        if any(name in self._found for name in self._loop.names):
            self._loop.report(self._found)
            self._awaits_evaluation = False
            self._end_epoch(control)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`: end the run."""
        self._require_metric()
        self._loop.end()

    def _end_epoch(self, control: TrainerControl) -> None:
        if self._loop.end_epoch():
            control.should_training_stop = True

    def _require_metric(self) -> None:
        if self._awaits_evaluation:
            # Raises the error that names what was found.
            self._loop.report(self._found)


class PowerLimitCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Measures power limits while the Trainer trains, and holds the best one until the training ends.

    Args:
        optimizer: The optimizer, which the end of the training ends.
        metric: Name of the evaluation's metric for `profile_again_at`, such as ``eval_loss``; None: none.
    """

    def __init__(self, optimizer: PowerLimitOptimizer, metric: str | None = None) -> None:
        if not isinstance(optimizer, PowerLimitOptimizer):
            raise UsageError(f"optimizer is {short_repr(optimizer)}; it must be a wattloop.PowerLimitOptimizer")
        self._optimizer = optimizer
        self._metric = metric
        self._in_epoch = False

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`."""
        self._in_epoch = True
        self._optimizer.on_epoch_begin()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`. An evaluation between steps is not measured."""
        self._optimizer.on_step_end()
        if control.should_evaluate:
            self._optimizer.on_epoch_end()

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`."""
        self._in_epoch = False
        self._optimizer.on_epoch_end()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any] | None = None,
        **others: object,
    ) -> None:
        """See `TrainerCallback`: what follows within the epoch is measured again."""
        value = None if self._metric is None else (metrics or {}).get(self._metric)
        self._optimizer.on_epoch_end(metric=value)
        if self._in_epoch:
            self._optimizer.on_epoch_begin()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: object
    ) -> None:
        """See `TrainerCallback`: release the power limit."""
        self._optimizer.end()


def _samples_of_epoch(loader: object) -> int:
    """Number of samples of an epoch, or 0 if the data set does not tell."""
    try:
        return len(loader.dataset)  # type: ignore[attr-defined]
    except (AttributeError, TypeError, NotImplementedError):
        return 0


def _check(arguments: TrainingArguments) -> None:
    if not isinstance(arguments, TrainingArguments):
        raise UsageError(f"arguments is {short_repr(arguments)}; it must be the script's TrainingArguments")
    strategy = getattr(arguments.eval_strategy, "value", arguments.eval_strategy)
    if strategy != "epoch":
        reason = "'epoch': Wattloop compares batch sizes by the epochs that they need"
        raise InputError(PLACE, f"eval_strategy={strategy!r}", reason)
    if arguments.max_steps > 0:
        expected = "num_train_epochs: the same number of steps is another amount of data with each batch size"
        raise InputError(PLACE, f"max_steps={arguments.max_steps}", expected)
    if arguments.auto_find_batch_size:
        expected = "False: Wattloop chooses the batch size, and tries no more one that runs out of memory"
        raise InputError(PLACE, "auto_find_batch_size=True", expected)
    if arguments.accelerator_config.split_batches:
        raise InputError(PLACE, "split_batches=True", "False, so that the batch size is that of one device")
