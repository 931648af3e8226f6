"""Probes of a hyperparameter on copies of a PyTorch model and its optimizer.

The live model, its buffers and gradients, the optimizer's state, all random number generators and the
position of the data loader stay as they are, bit for bit.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from wattloop.errors import UsageError
from wattloop.run.probing import Probe, Probes, check_probes, run_probe, unchanged_random_numbers

Value = TypeVar("Value")
Step = Callable[[torch.nn.Module, torch.optim.Optimizer, Any], Any]


def probe_values(
    values: Sequence[Value],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Step,
    apply: Callable[[Value, torch.nn.Module, torch.optim.Optimizer], None],
    *,
    data: Iterable[Any],
    steps: int = 20,
) -> Probes[Value]:
    """Train copies of the model and the optimizer for a few steps with each value.

    All values get the same batches and random numbers. At any time there is one copy.

    Args:
        values: Values of the hyperparameter, such as learning rates.
        model: The live model; of a DistributedDataParallel its ``module``.
        optimizer: Its optimizer.
        step: A training step, ``step(model, optimizer, batch)``, which returns the loss. It must use the
            model and the optimizer that it gets.
        apply: Sets a value, ``apply(value, model, optimizer)``; see `set_learning_rate`, `set_dropout`.
        data: Batches: a data loader, which is iterated from its start, or a list; at least one batch. If there are
            fewer than `steps`, they are repeated.
        steps: Number of steps with each value.

    Raises:
        UsageError: The data is an iterator or a loader with persistent workers, whose position would
            change, or is empty; the model is
            wrapped; a step changed the live model, its gradients or its optimizer; or there is no value.
    """
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise UsageError("a DistributedDataParallel cannot be copied; pass its module")
    check_probes(values, steps)
    probes: list[Probe[Value]] = []
    for value in values:
        with copied(model, optimizer, data) as (model_copy, optimizer_copy):
            apply(value, model_copy, optimizer_copy)
            batches = repeated(data)

            def do_step(
                model: torch.nn.Module = model_copy,
                optimizer: torch.optim.Optimizer = optimizer_copy,
                batches: Iterator[Any] = batches,
            ) -> float:
                loss = step(model, optimizer, next(batches))
                return float(loss.detach() if isinstance(loss, torch.Tensor) else loss)

            probes.append(run_probe(value, do_step, steps))
    return Probes(tuple(probes))


@contextlib.contextmanager
def copied(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, data: Iterable[Any]
) -> Iterator[tuple[torch.nn.Module, torch.optim.Optimizer]]:
    """Copies of a model and its optimizer; at the end all random numbers and the data are as before.

    Args:
        model: The live model.
        optimizer: Its optimizer.
        data: The batches of the steps on the copies.

    Raises:
        UsageError: The position of the data would change; or, at the end, the live model, its gradients or its
            optimizer changed.
    """
    if isinstance(data, Iterator) or getattr(data, "persistent_workers", False):
        raise UsageError(
            "data is an iterator or a data loader with persistent workers, whose position would change; pass a data "
            "loader without them, or a list of batches"
        )
    before = _versions(model, optimizer)
    with unchanged_random_numbers(), unchanged_generators(data), torch.enable_grad():
        yield copy.deepcopy((model, optimizer))
    if _versions(model, optimizer) != before:
        raise UsageError(
            "the step changed the live model or optimizer; it must use the model and the optimizer that it gets"
        )


def set_learning_rate(value: float, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ARG001
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = value


def set_dropout(value: float, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ARG001
    """Set the probability of all dropout layers."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = value


def repeated(data: Iterable[Any]) -> Iterator[Any]:
    """The batches again and again.

    Raises:
        UsageError: There is none, at first or again.
    """
    while True:
        batches = iter(data)
        first = next(batches, None)
        if first is None:
            raise UsageError("data has no batch, or none when it is iterated again; pass a data loader or a list")
        yield first
        yield from batches


@contextlib.contextmanager
def unchanged_generators(data: Iterable[Any]) -> Iterator[None]:
    """Restore PyTorch's generators, those of the data loader, and its position if it offers its state."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators += list(torch.cuda.default_generators)
    for owner in (data, getattr(data, "sampler", None)):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generators.append(generator)
    states = [generator.get_state() for generator in generators]
    stateful = hasattr(data, "state_dict") and hasattr(data, "load_state_dict")
    position = copy.deepcopy(data.state_dict()) if stateful else None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        if stateful:
            data.load_state_dict(position)  # type: ignore[attr-defined]


def _versions(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[tuple[int, int]]:
    """Identity and version of each live tensor; PyTorch counts the changes of a tensor in its version."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for state in optimizer.state.values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return [(id(tensor), tensor._version) for tensor in tensors]
