"""What a GPU would have to do for this training, told to a simulated one; nothing where there is none.

The example trains on the processor in milliseconds. To have something to measure, each step occupies a simulated GPU as
a training of a real size would: the step's work, and a fixed part per step during which the GPU is mostly idle, so that
small batches use it badly.
"""

from __future__ import annotations

import os

# An A100 does 312 TFLOP/s: an epoch of 1,437 examples takes it about a minute, as in a real fine-tuning.
TERAFLOP_PER_EXAMPLE = 13.0
# The fixed part of a step, in examples: kernel launches, data loading, the optimizer's update.
FIXED_EXAMPLES = 32


class SimulatedGpu:
    """The simulated GPUs that this process was given, or the machine's first, where the environment names a machine."""

    def __init__(self) -> None:
        # In a container NVIDIA_VISIBLE_DEVICES names its own, by their uuids.
        visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
        self._gpus: list[str] | list[int] = visible.split(",") if visible.startswith(("GPU-", "MIG-")) else [0]
        self._machine = None
        if os.environ.get("WATTLOOP_SIMULATED_GPUS_STATE"):
            import nvml_simulator  # noqa: PLC0415  a real node has no simulator

            self._machine = nvml_simulator.machine()

    def train_step(self, examples: int) -> None:
        """Occupy the GPUs for one step on so many examples, which they divide among them."""
        if self._machine is not None:
            examples_each = examples / len(self._gpus)
            busy = examples_each / (examples_each + FIXED_EXAMPLES)
            work = TERAFLOP_PER_EXAMPLE * (examples_each + FIXED_EXAMPLES)
            self._machine.occupy(self._gpus, work=work, intensity=busy)
