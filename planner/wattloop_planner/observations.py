"""What a policy learns from: one observation for each attempt that taught something."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wattloop.cost import CostModel


class Outcome(StrEnum):
    """How an attempt ended.

    REACHED: the target metric was reached.
    STOPPED: stopped because it became too dear; the epochs to the target are only known to be more than those run.
    EXHAUSTED: all epochs run, target not reached.
    CRASHED: the process died (out of memory among others); says nothing of epochs, counts against the arm.

    An attempt that reported no metric teaches nothing and is no observation at all.
    """

    REACHED = "reached"
    STOPPED = "stopped"
    EXHAUSTED = "exhausted"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Observation:
    """What one attempt cost.

    Attributes:
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within the recurrence, from 0.
        batch_size: The arm.
        outcome: How the attempt ended.
        epochs: Epochs run, a decimal where the attempt ended inside one.
        energy_joules: Energy of all GPUs over the attempt.
        time_seconds: Duration of the attempt.
        max_power_watts: Sum of the maximum power limits of the GPUs it ran on.
        gpu_model: Their product name; epoch costs of different models are not comparable, epochs are.
        epoch_energy_joules: Energy of one epoch at the best power limit, where a profile gives it.
        epoch_time_seconds: Duration of one epoch at the best power limit, where a profile gives it.
        from_other_job: Whether it was learned by another job (`spec.batchSize.learnFrom`): its epochs inform, no more.
    """

    recurrence: int
    attempt: int
    batch_size: int
    outcome: Outcome
    epochs: float
    energy_joules: float
    time_seconds: float
    max_power_watts: float
    gpu_model: str = ""
    epoch_energy_joules: float | None = None
    epoch_time_seconds: float | None = None
    from_other_job: bool = False

    def cost_joules(self, eta: float) -> float:
        """Cost of the attempt in joules at this weight of energy, on the GPUs it ran on."""
        return CostModel(eta, self.max_power_watts).cost_joules(self.energy_joules, self.time_seconds)
