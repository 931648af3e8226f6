"""The accelerator of the strangers' scripts: a simulated GPU, whose time passes as the scripts ask for it.

In a script of one's own these calls are kernels and copies. Here they use energy and time of a simulated GPU with a
virtual clock, so that the costs of a script are the same on every machine, and no test waits.
"""

from __future__ import annotations

import os

import nvml_simulator

# An A100 does 312 of them in a second.
TERAFLOP_PER_SAMPLE = 2.0
# What the launch of a step costs, in samples: small batches use the GPU badly.
SAMPLES_PER_LAUNCH = 24


def train_on(samples: int, gpu: int = 0) -> None:
    """Keep the GPU busy with one step on this many samples."""
    busy = samples / (samples + SAMPLES_PER_LAUNCH)
    work = TERAFLOP_PER_SAMPLE * (samples + SAMPLES_PER_LAUNCH)
    nvml_simulator.occupy(_visible(gpu), work=work, intensity=busy)


def wait_for(seconds: float, gpu: int = 0) -> None:
    """Leave the GPU idle, as while a model is compiled or data is loaded."""
    nvml_simulator.machine().idle(_visible(gpu), seconds)


def _visible(gpu: int) -> int | str:
    """A container has only the GPUs that it was given."""
    given = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    return given.split(",")[gpu] if given.startswith("GPU-") else gpu
