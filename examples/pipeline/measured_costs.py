"""Measures how long each layer of a model takes, for the partition `measured`."""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist
from model_catalogue import Layer, Model
from model_layers import make_layer
from training_data import Samples

WARM_UP, REPETITIONS = 1, 5


def measured_costs(
    model: Model, microbatch_size: int, device: torch.device, seed: int, dtype: torch.dtype
) -> list[float]:
    """Seconds of forward and backward of a microbatch for each layer, as rank 0 measures them.

    Layers that are alike are measured once. All ranks call it, and get the same times.
    """
    costs = [0.0] * len(model.layers)
    if dist.get_rank() == 0:
        by_layer: dict[tuple[Layer, tuple[int, ...]], float] = {}
        inputs = Samples(model, None, seed, 0).draw(microbatch_size)[0].to(device)
        for number, layer in enumerate(model.layers):
            if number:
                shape = (microbatch_size, *model.layers[number - 1].outputs)
                inputs = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
            elif inputs.is_floating_point():
                inputs = inputs.to(dtype)
            key = layer, tuple(inputs.shape)
            if key not in by_layer:
                by_layer[key] = _seconds(make_layer(model, number, device, seed).to(dtype), inputs)
            costs[number] = by_layer[key]
    shared = torch.tensor(costs, dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return shared.tolist()


def _seconds(layer: torch.nn.Module, inputs: torch.Tensor) -> float:
    found = []
    for _ in range(WARM_UP + REPETITIONS):
        _synchronize(inputs.device)
        begin = time.perf_counter()
        outputs = layer(inputs)
        outputs.backward(torch.ones_like(outputs))
        _synchronize(inputs.device)
        found.append(time.perf_counter() - begin)
    return statistics.median(found[WARM_UP:])


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
