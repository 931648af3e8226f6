"""Keras: its learning rate, reports, and the end at the target, with any backend of Keras 3.

`fit` validates after each epoch, since Wattloop compares batch sizes by their epochs.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from typing import Any

import keras

from wattloop.errors import InputError
from wattloop.integrations.epoch_loop import EpochLoop
from wattloop.run.training_run import Run

logger = logging.getLogger("wattloop")

PLACE = "Keras' fit"
VALIDATION_PREFIX = "val_"
# The factor in the learning rate of each optimizer, which a second training with it replaces.
_factors: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()


class WattloopCallback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Reports each validation, and ends the training at the target or on request of the operator.

    It multiplies the learning rate of the model's optimizer, which may be a schedule.

    Args:
        run: The run. If it has not begun, the training begins it and ends it.
        metric: Name of the metric, with or without ``val_``; default: that of the job's target, or
            outside Wattloop ``loss``.
        scale_learning_rate: Whether to multiply the learning rate by the run's factor. False: the
            script does it, or the optimizer comes from a checkpoint that has the factor.

    Raises:
        InputError: `fit` has fewer epochs than the run, no validation in an epoch, or the validation
            has no such metric; or the learning rate is a function, which cannot be multiplied.
        UsageError: `run` is no run, has been used before, or `metric` is no name.
    """

    def __init__(self, run: Run, metric: str | None = None, *, scale_learning_rate: bool = True) -> None:
        super().__init__()
        self._loop = EpochLoop(run, metric, prefix=VALIDATION_PREFIX, source="Keras' validation")
        self._scales = scale_learning_rate
        self._batches = 0
        self._last_batch = -1

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """See `Callback`: begin the run."""
        run = self._loop.run
        epochs = (self.params or {}).get("epochs")
        if epochs is not None and epochs < run.max_epochs:
            raise InputError(PLACE, f"epochs={epochs}", f"run.max_epochs, {run.max_epochs} at least")
        if self._scales:
            _scale(getattr(self.model, "optimizer", None), run.learning_rate_scale)
        self._loop.begin()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See `Callback`: the first batch follows."""
        self._batches, self._last_batch = 0, -1

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See `Callback`: count an optimizer step, which may have several batches (accumulation)."""
        # With steps_per_execution there is one call for several batches.
        self._batches += batch - self._last_batch
        self._last_batch = batch
        parts = getattr(getattr(self.model, "optimizer", None), "gradient_accumulation_steps", None) or 1
        steps, self._batches = divmod(self._batches, parts)
        if steps:
            self._loop.run.step(steps * self._loop.run.batch_size)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """See `Callback`: report the validation of the epoch."""
        if not self._loop.is_open:
            return
        metrics = logs or {}
        if not any(name.startswith(VALIDATION_PREFIX) for name in metrics):
            # Without a validation, accuracy is that of the training data.
            expected = "validation_data or validation_split, and validation_freq=1"
            error = InputError(PLACE, "no validation in the epoch", expected)
            self._loop.end(type(error), error)
            raise error
        self._loop.report(metrics)
        if self._loop.end_epoch():
            self.model.stop_training = True

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """See `Callback`: end the run."""
        self._loop.end()


@keras.saving.register_keras_serializable(package="wattloop")  # type: ignore[untyped-decorator,unused-ignore]
class ScaledSchedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc,unused-ignore]
    """The learning rate of a schedule, times a factor.

    Args:
        schedule: The schedule of the script.
        factor: The factor.
    """

    def __init__(self, schedule: Any, factor: float) -> None:
        self.schedule = schedule
        self.factor = factor

    def __call__(self, step: Any) -> Any:
        """The learning rate at a step."""
        return self.schedule(step) * self.factor

    def get_config(self) -> dict[str, Any]:
        """See `LearningRateSchedule`."""
        return {"schedule": keras.optimizers.schedules.serialize(self.schedule), "factor": self.factor}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ScaledSchedule:
        """See `LearningRateSchedule`."""
        return cls(keras.optimizers.schedules.deserialize(config["schedule"]), config["factor"])


def _scale(optimizer: Any, factor: float) -> None:
    """Give an optimizer's learning rate this factor, in place of that of an earlier training."""
    # LossScaleOptimizer has the learning rate of the optimizer in it.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    before = 1.0 if optimizer is None else _factors.get(optimizer, 1.0)
    if factor == before:
        return
    if optimizer is None:
        logger.warning("the model has no optimizer of its own: multiply its learning rates by run.learning_rate_scale")
        return
    # `learning_rate` of a schedule is the rate of the present step; no public property has the schedule itself.
    rate = optimizer._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        schedule = rate.schedule if isinstance(rate, ScaledSchedule) else rate
        optimizer.learning_rate = ScaledSchedule(schedule, factor)
    elif callable(rate) and not hasattr(rate, "assign"):
        expected = "a number or a schedule; or scale_learning_rate=False, and run.learning_rate_scale in the function"
        raise InputError(PLACE, "a learning rate that is a function", expected)
    else:
        optimizer.learning_rate = float(rate) * factor / before
    _factors[optimizer] = factor
