"""Load on simulated GPUs for a training with PyTorch; does nothing on a machine without them.

The examples train on the CPU in milliseconds. To produce energy to measure, each step of an optimizer
occupies a simulated GPU like a training of realistic size: with the work of the step, and with a fixed
part during which the GPU is mostly idle, so that small batches have a low utilization.
"""

from __future__ import annotations

import os

from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

# About a minute for each epoch of 1,437 examples on an A100.
TERAFLOP_PER_EXAMPLE = 13.0
# Cost of the fixed part of a step, in examples: kernel launches, data loading, the optimizer's update.
FIXED_EXAMPLES = 32


def occupy(examples: int) -> None:
    """Occupy this process's simulated GPU with a step of this many examples; does nothing without one."""
    if not examples or not os.environ.get("WATTLOOP_SIMULATED_GPUS_STATE"):
        return
    import nvml_simulator  # noqa: PLC0415  a real node has no simulator

    machine = nvml_simulator.machine()
    # In a container NVIDIA_VISIBLE_DEVICES lists the UUIDs of the container's GPUs, in any order. A process
    # counts them by their index on the machine, as CUDA and NVML do.
    listed = os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
    uuids = sorted((each for each in listed if each.startswith(("GPU-", "MIG-"))), key=machine.index)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    gpu = uuids[rank % len(uuids)] if uuids else rank
    busy = examples / (examples + FIXED_EXAMPLES)
    machine.occupy([gpu], work=TERAFLOP_PER_EXAMPLE * (examples + FIXED_EXAMPLES), intensity=busy)


def follow(model: nn.Module) -> None:
    """Occupy the simulated GPU with each step of an optimizer, by the examples since the last one."""
    if not os.environ.get("WATTLOOP_SIMULATED_GPUS_STATE"):
        return
    examples = 0

    def count(module: nn.Module, positional: tuple, named: dict, _result: object) -> None:
        nonlocal examples
        if module.training:
            examples += len(next(iter((*positional, *named.values()))))

    def after_step(*_arguments: object) -> None:
        nonlocal examples
        occupy(examples)
        examples = 0

    model.register_forward_hook(count, with_kwargs=True)
    register_optimizer_step_post_hook(after_step)
