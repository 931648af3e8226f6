"""Load on simulated GPUs for a pipeline of PyTorch; does nothing on a machine without them.

The example trains on the CPU in milliseconds. To produce energy to measure, each instruction occupies a
simulated GPU like one of a model of realistic size, for a time that depends on the GPU's clock.

With the simulator's virtual clock each GPU has its own time, and no time passes while a process waits.
Therefore a stage also waits, on its GPU, until the time at which the other stage had computed what it
receives, and no instruction begins before the agent has set its clock, which real GPUs do within a
millisecond.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist
from torch import nn

from wattloop.gpus.process_gpus import CUDA_VARIABLE, GPUS_VARIABLE, visible_gpus

# The methods of a stage by the instruction that they run; not every stage has the last two.
METHODS = {
    "forward": "forward_one_chunk",
    "backward": "backward_one_chunk",
    "recomputation": "recompute_one_chunk",
    "forwardbackward": "recompute_backward_one_chunk",
}
# Forward of a stage with two blocks: 150 ms on an A100. Backward takes twice as long. In real time it is a tenth.
TERAFLOP_PER_PARAMETER = 47.0 / 25_216
REAL_TIME_FACTOR = 0.1
# Just below the power limit of an A100 at its highest clock.
INTENSITY = 0.7
CLOCK_TIMEOUT_SECONDS = 30.0


def teraflop(module: nn.Module, kind: str) -> float:
    """Work of the forward or backward of a microbatch: in proportion to the weights that it multiplies by."""
    weights = sum(layer.weight.numel() for layer in module.modules() if isinstance(layer, nn.Linear))
    return TERAFLOP_PER_PARAMETER * weights * {"forward": 1, "backward": 2}[kind]


class SimulatedGpu:
    """The simulated GPU of this process, if the environment names a machine.

    Args:
        stage: The stage of this process, before anything else wraps its methods.
        work: The work of a microbatch in teraflop, by the kind of instruction; default: that of a model of realistic
            size, by the weights of the stage.
    """

    def __init__(self, stage: Any, work: Mapping[str, float] | None = None) -> None:
        self._stage = stage
        self._machine = None
        self._pipeline: Any = None
        self._seen: Counter[tuple[str, int]] = Counter()
        self._timeout_seconds = CLOCK_TIMEOUT_SECONDS
        if os.environ.get("WATTLOOP_SIMULATED_GPUS_STATE"):
            import nvml_simulator  # noqa: PLC0415  a real node has no simulator

            self._machine = nvml_simulator.machine()
            self._is_virtual = self._machine.describe().clock == "virtual"
            rank = int(os.environ.get("LOCAL_RANK", "0"))
            uuids = self._visible()
            self._gpu = uuids[rank % len(uuids)]
            factor = 1.0 if self._is_virtual or work is not None else REAL_TIME_FACTOR
            for kind, name in METHODS.items():
                if hasattr(stage, name):
                    teraflops = (teraflop(stage.submod, kind) if work is None else work[kind]) * factor
                    setattr(stage, name, self._working(kind, teraflops, getattr(stage, name)))

    def _visible(self) -> tuple[str, ...]:
        """The GPUs that the processes of this node use, as CUDA and NVML count them: by their index on the machine."""
        machine = self._machine
        # In a container NVIDIA_VISIBLE_DEVICES lists the UUIDs of the container's GPUs, in any order.
        listed = os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
        uuids = sorted((each for each in listed if each.startswith("GPU-")), key=machine.index)
        uuids = uuids or [gpu.uuid for gpu in machine.describe().gpus]
        chosen = os.environ.get(GPUS_VARIABLE) or os.environ.get(CUDA_VARIABLE) or None
        return visible_gpus(chosen, uuids) or tuple(uuids)

    @property
    def product(self) -> str:
        """The model of the simulated GPU, such as ``A100``; empty if there is none."""
        return "" if self._machine is None else str(self._machine.describe().model)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `attach`: with the virtual clock, instructions are timed with the GPU's clock."""
        machine = self._machine
        if machine is None or not self._is_virtual:
            return {}
        return {"now": lambda: machine.clock_seconds(self._gpu)}

    def exchange_times(self, pipeline: Any) -> None:
        """Let instructions wait for those of the other stages; called after `attach`, because waiting is none."""
        self._pipeline = pipeline
        if self._machine is None or not self._is_virtual:
            return
        stage, last = self._stage, self._stage.num_stages - 1
        own = stage.stage_index
        self._places = {(each.kind, each.microbatch): place for place, each in enumerate(pipeline.instructions)}
        name = f"simulated-gpus-{pipeline.place.data_rank}"
        self._store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
        for kind, name in METHODS.items():
            if not hasattr(stage, name) or kind == "recomputation":
                continue
            message, before, after = (
                ("forward", own - 1, own + 1) if kind == "forward" else ("backward", own + 1, own - 1)
            )
            sender = before if 0 <= before <= last else None
            setattr(stage, name, self._exchanging(message, sender, 0 <= after <= last, getattr(stage, name)))

    def _working(self, kind: str, work: float, compute: Callable[..., Any]) -> Callable[..., Any]:
        def compute_and_work(chunk: int, *args: Any, **named: Any) -> Any:
            result = compute(chunk, *args, **named)
            if self._pipeline is not None and self._is_virtual:
                self._await_clock(kind, chunk)
            self._machine.occupy(self._gpu, work=work, intensity=INTENSITY)
            return result

        return compute_and_work

    def _exchanging(
        self, kind: str, sender: int | None, has_receiver: bool, compute: Callable[..., Any]
    ) -> Callable[..., Any]:
        def wait_and_compute(chunk: int, *args: Any, **named: Any) -> Any:
            self._seen[kind, chunk] += 1
            count = self._seen[kind, chunk]
            if sender is not None:
                message = f"{kind}/{sender}/{chunk}/{count}"
                self._machine.wait(self._gpu, until_seconds=float(self._store.get(message)))
                self._store.delete_key(message)
            result = compute(chunk, *args, **named)
            if has_receiver:
                seconds = self._machine.clock_seconds(self._gpu)
                self._store.set(f"{kind}/{self._stage.stage_index}/{chunk}/{count}", repr(seconds))
            return result

        return wait_and_compute

    def _await_clock(self, kind: str, chunk: int) -> None:
        """Wait until the GPU has the clock of this instruction; not again after a long wait in vain."""
        clocks = self._pipeline.clocks_megahertz
        place = self._places.get((kind, chunk))
        expected = (clocks[place],) * 2 if clocks and place is not None else None
        deadline = time.monotonic() + self._timeout_seconds
        while self._machine.describe_gpu(self._gpu).locked_graphics_clocks_megahertz != expected:
            if time.monotonic() >= deadline:
                self._timeout_seconds = 0.0
                return
            time.sleep(0.0005)
