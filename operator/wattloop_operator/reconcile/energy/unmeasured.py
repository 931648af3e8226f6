"""Whether the energy and the time of an attempt were measured, and what to do if not.

An attempt without them has no cost. It is not one that cost nothing: nothing is learned from it, and it counts in no
mean and in no saving.
"""

from __future__ import annotations

from wattloop_operator.api.attempt_state import Progress, Result
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus, Usage
from wattloop_operator.reconcile.energy.attempt_usage import has_cost, max_power_of

# Product name of the device that stands for the processors of a machine without a GPU.
PROCESSORS_PRODUCT = "processors"
READ_PROCESSORS = "run it as root on a machine with RAPL, or simulate a GPU: --simulated-gpus 1 --simulated-load cpu"
# The results that something would be learned from.
_LEARNED = frozenset({Result.REACHED, Result.STOPPED, Result.EXHAUSTED, Result.DIVERGED})


def unmeasured_message(recurrence: TrainingRecurrence, result: Result, usage: Usage | None) -> str:
    """Why no energy of an ended attempt was measured, and what to do; empty if it was, or if nothing is lost."""
    progress = recurrence.status.progress or Progress()
    max_power = max_power_of(progress, usage)
    energy = 0.0 if usage is None else float(usage.gpu_energy_joules)
    seconds = 0.0 if usage is None else float(usage.duration_seconds)
    if result not in _LEARNED or has_cost(energy, seconds, max_power):
        return ""
    return f"no energy was measured, so nothing is learned from it: {_cause(recurrence, usage, energy, seconds)}"


def without_unmeasured_message(recurrence: TrainingRecurrence, status: TrainingRecurrenceStatus) -> str:
    """The message of an ended attempt whose energy has become known."""
    if status.result is None:
        return status.message
    return status.message.removesuffix(f"; {unmeasured_message(recurrence, status.result, status.usage)}")


def _cause(recurrence: TrainingRecurrence, usage: Usage | None, energy: float, seconds: float) -> str:
    if usage is None or not usage.devices:
        if not recurrence.status.devices:
            return "neither its processes nor a node agent saw a GPU; request one in its template"
        return "neither its processes nor a node agent reported its GPUs; check that the node agent runs on its node"
    if usage.gpu_product == PROCESSORS_PRODUCT:
        return f"this machine has no GPU, and the energy of its processors cannot be read; {READ_PROCESSORS}"
    if seconds <= 0:
        return "no time passed on its GPUs; on simulated GPUs, add --time-scale 1 or simulate the training's work"
    if energy <= 0:
        gpus = "GPU" if usage.devices == 1 else f"{usage.devices} GPUs"
        return (
            f"the energy counters of its {gpus} did not advance in {seconds:g} s; check with nvidia-smi that they "
            "count energy, and that the training runs on them"
        )
    return "the maximum power limit of its GPUs is not known; check that the node agent runs on its node"
