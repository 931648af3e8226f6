"""The accelerator of the strangers' scripts: a simulated GPU, whose time passes as the scripts ask for it.

In a script of one's own these calls are kernels and copies. Here they use energy and time of a simulated GPU with a
virtual clock, so that the costs of a script are the same on every machine, and no test waits. DEVICE_PACE is for a
script that others must keep up with: the real seconds that a second of its GPU takes.
"""

from __future__ import annotations

import os
import time

import nvml_simulator

TERAFLOP_PER_SAMPLE = 2.0
TERAFLOP_PER_SECOND = 312.0
# What the launch of a step costs, in samples: small batches use the GPU badly.
SAMPLES_PER_LAUNCH = 24
PACE = float(os.environ.get("DEVICE_PACE", "0"))


def train_on(samples: int, gpu: int = 0) -> None:
    """Keep the GPU busy with one step on this many samples."""
    busy = samples / (samples + SAMPLES_PER_LAUNCH)
    work = TERAFLOP_PER_SAMPLE * (samples + SAMPLES_PER_LAUNCH)
    nvml_simulator.occupy(_visible(gpu), work=work, intensity=busy)
    time.sleep(PACE * work / TERAFLOP_PER_SECOND)


def wait_for(seconds: float, gpu: int = 0) -> None:
    """Leave the GPU idle, as while a model is compiled or data is loaded."""
    nvml_simulator.machine().idle(_visible(gpu), seconds)


def _visible(gpu: int) -> int | str:
    """A container has only the GPUs that it was given."""
    given = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    return given.split(",")[gpu] if given.startswith("GPU-") else gpu
