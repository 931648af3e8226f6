"""Load on simulated GPUs for this training; does nothing on a machine without them.

The example trains on the CPU in milliseconds. To produce energy to measure, each step occupies a
simulated GPU like a training of realistic size: with the work of the step, and with a fixed part during
which the GPU is mostly idle, so that small batches have a low utilization.
"""

from __future__ import annotations

import os

# An A100 does 312 TFLOP/s, so an epoch of 1,437 examples takes about a minute, as in a real fine-tuning.
TERAFLOP_PER_EXAMPLE = 13.0
# Cost of the fixed part of a step, in examples: kernel launches, data loading, the optimizer's update.
FIXED_EXAMPLES = 32


class SimulatedGpu:
    """The simulated GPUs assigned to this process, or the machine's first one, if the environment names a machine."""

    def __init__(self) -> None:
        # In a container NVIDIA_VISIBLE_DEVICES lists the uuids of the container's GPUs.
        visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
        self._gpus: list[str] | list[int] = visible.split(",") if visible.startswith(("GPU-", "MIG-")) else [0]
        self._machine = None
        if os.environ.get("WATTLOOP_SIMULATED_GPUS_STATE"):
            import nvml_simulator  # noqa: PLC0415  a real node has no simulator

            self._machine = nvml_simulator.machine()

    def train_step(self, examples: int) -> None:
        """Occupy the GPUs for one step on this number of examples, divided among them."""
        if self._machine is not None:
            examples_each = examples / len(self._gpus)
            busy = examples_each / (examples_each + FIXED_EXAMPLES)
            work = TERAFLOP_PER_EXAMPLE * (examples_each + FIXED_EXAMPLES)
            self._machine.occupy(self._gpus, work=work, intensity=busy)
