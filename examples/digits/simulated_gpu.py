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
    """The simulated GPU 0 of this machine, where the environment names one."""

    def __init__(self) -> None:
        self._machine = None
        if os.environ.get("WATTLOOP_SIMULATED_GPUS_STATE"):
            import nvml_simulator  # noqa: PLC0415  a real node has no simulator

            self._machine = nvml_simulator.machine()

    def train_step(self, examples: int) -> None:
        """Occupy the GPU for one step on so many examples."""
        if self._machine is not None:
            busy = examples / (examples + FIXED_EXAMPLES)
            self._machine.occupy(0, work=TERAFLOP_PER_EXAMPLE * (examples + FIXED_EXAMPLES), intensity=busy)
