"""A GPU with known energy, and the samples that a monitor takes of it, in virtual time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from wattloop.energy.gpu_reading import GpuReading
from wattloop_agent.monitor.energy.attribution import Assignment, AssignmentObservation

GPU = "GPU-00000000-0000-0000-0000-000000000001"


@dataclass
class TrueGpu:
    """A GPU with piecewise constant power and a counter with updates and resets.

    Attributes:
        changes: (seconds, watts), in order; 0 W before the first.
        step_seconds: Update period of the counter.
        resets: Moments at which the counter is reset.
    """

    changes: Sequence[tuple[float, float]] = ((0.0, 100.0),)
    step_seconds: float = 0.1
    resets: list[float] = field(default_factory=list)
    uuid: str = GPU

    def power(self, moment: float) -> float:
        return next((watts for since, watts in reversed(self.changes) if since <= moment), 0.0)

    def energy(self, moment: float) -> float:
        """Joules since 0."""
        ends = [*(since for since, _ in self.changes[1:]), math.inf]
        return sum(
            watts * max(min(end, moment) - since, 0.0) for (since, watts), end in zip(self.changes, ends, strict=True)
        )

    def counter(self, moment: float) -> int:
        stepped = math.floor(moment / self.step_seconds + 1e-9) * self.step_seconds
        since = max((each for each in self.resets if each <= moment), default=0.0)
        return int(max(self.energy(stepped) - self.energy(since), 0.0) * 1000)

    def sample(self, moment: float, *, counts: bool = True, has_power: bool = True) -> GpuReading:
        return GpuReading(
            self.uuid,
            moment,
            moment + 0.003,
            self.counter(moment) if counts else None,
            None,
            self.power(moment) if has_power else None,
            moment,
            "A100",
        )


def pod(name: str, gpu: str = GPU, *, shared: bool = False) -> Assignment:
    return Assignment(f"uid-{name}", "default", name, "main", gpu, shared)


def observation_at(moment: float, *assignments: Assignment) -> AssignmentObservation:
    return AssignmentObservation(moment, moment + 0.02, assignments)
