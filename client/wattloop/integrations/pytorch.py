"""A plain PyTorch loop: the parts of a batch, and the learning rates of an optimizer.

Without these, a loop needs `run.batch_size` or `run.per_device_batch_size`, and
`run.learning_rate_scale`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from wattloop.arguments import whole_number
from wattloop.errors import UsageError
from wattloop.integrations.epoch_loop import checked_run
from wattloop.printable import short_repr
from wattloop.run.micro_batches import MicroBatches
from wattloop.run.micro_batches import micro_batches as shared
from wattloop.run.training_run import Run

# Plain gradient descent: in proportion to the batch size (Goyal et al. 2017, "Accurate, Large Minibatch SGD").
LINEAR = ("SGD", "ASGD", "LARS")
# Steps that a gradient's second moment divides: with the square root (Malladi et al. 2022, "On the SDEs and Scaling
# Rules for Adaptive Gradient Algorithms").
SQUARE_ROOT = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "SparseAdam", "RMSprop", "Adagrad", "Adadelta", "LAMB")
# Of a group of parameters; OneCycleLR and CyclicLR keep the last two.
GROUP_LEARNING_RATES = ("lr", "initial_lr", "max_lr", "min_lr")


def micro_batches(run: Run, max_per_device: int | None = None) -> MicroBatches:
    """The parts of one optimizer step on the devices of this training.

    Their number is the world size where `torch.distributed` is initialised, and else the number of
    devices that share the run's batch.

    Args:
        run: The run.
        max_per_device: The most samples that fit into a device's memory; default: any number.

    Returns:
        ``batch_size`` for the data loader of each process, and ``accumulation``, the number of
        backward passes before the optimizer steps. A batch that does not divide is rounded down.

    Raises:
        UsageError: `run` is no run, or the number is not a positive whole number.
    """
    checked_run(run)
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    devices = torch.distributed.get_world_size() if distributed else run.batch_size // run.per_device_batch_size
    return shared(run.batch_size, max(devices, 1), max_per_device)


def scale_learning_rates(optimizer: torch.optim.Optimizer, run: Run, *, tuned_for: int | None = None) -> float:
    """Multiply the learning rate of each group of an optimizer by a factor for the run's batch size.

    Call it once, before a scheduler is made: schedulers remember the first learning rates.

    Args:
        optimizer: The optimizer with the learning rates of the script.
        run: The run, which has the factor by the job's `learningRateScaling`.
        tuned_for: The global batch size that the script's learning rates are tuned for. The rule then
            follows the optimizer instead of the job: Linear for plain gradient descent, SquareRoot
            for Adam and its relatives.

    Returns:
        The factor.

    Raises:
        UsageError: An argument is of another type, `tuned_for` is not positive, the optimizer is of an
            unknown kind, or the job scales the learning rate as well.
    """
    checked_run(run)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"optimizer is {short_repr(optimizer)}; it must be an optimizer of torch.optim")
    factor = run.learning_rate_scale if tuned_for is None else _factor(optimizer, run, tuned_for)
    multiply_learning_rates(optimizer, factor)
    return factor


def multiply_learning_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiply the learning rate of each group, and those that schedulers keep in the groups."""
    for group in optimizer.param_groups:
        for name in GROUP_LEARNING_RATES:
            if group.get(name) is not None:
                # Some optimizers have the learning rate as a tensor.
                group[name] = group[name] * factor


def samples_of(batch: object) -> int | None:
    """Number of samples of a batch: the length of its first tensor; None if it has none.

    Args:
        batch: A tensor, or tuples, lists and dictionaries of tensors.
    """
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 1
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if isinstance(batch, (tuple, list)):
        return next((found for found in map(samples_of, batch) if found is not None), None)
    return None


def _factor(optimizer: torch.optim.Optimizer, run: Run, tuned_for: int) -> float:
    whole_number(tuned_for, "tuned_for")
    if run.learning_rate_scale != 1:
        raise UsageError(
            f"the job's learningRateScaling already scales the learning rate by {run.learning_rate_scale:g}; "
            "leave tuned_for out, or set batchSize.learningRateScaling to None"
        )
    ratio = run.batch_size / tuned_for
    for kind in type(optimizer).__mro__:
        if kind.__name__ in LINEAR:
            return ratio
        if kind.__name__ in SQUARE_ROOT:
            return math.sqrt(ratio)
    raise UsageError(
        f"no scaling rule is known for {type(optimizer).__name__}; "
        f"known are {', '.join((*LINEAR, *SQUARE_ROOT))}: use the job's learningRateScaling"
    )
