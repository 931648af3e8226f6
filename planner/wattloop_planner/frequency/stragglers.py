"""What to do while another pipeline is late: the iteration may last until the straggler's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattloop_planner.frequency.pipeline.plans import Realised

SLOWDOWNS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5)


@dataclass(frozen=True)
class DeadlinePlan:
    """The plan for a deadline.

    Attributes:
        plan: Its number among the plans given.
        realised: What it takes.
        energy_until_deadline_joules: Its energy and that of waiting until the deadline; None where it is later.
    """

    plan: int
    realised: Realised
    energy_until_deadline_joules: float | None

    @property
    def meets_deadline(self) -> bool:
        """Whether the plan is done by the deadline."""
        return self.energy_until_deadline_joules is not None


def choose(plans: Sequence[Realised], deadline_seconds: float, waiting_power_watts: float) -> DeadlinePlan:
    """The slowest plan that meets the deadline, or the fastest where none does.

    Waiting until the deadline is paid anyway, so of undominated plans the slowest takes least until then; the plan of
    least energy by itself may take more.

    Args:
        plans: Not dominated, at least one, in any order.
        deadline_seconds: When the straggler is done.
        waiting_power_watts: Stages times blocking power.
    """
    in_time = [number for number, plan in enumerate(plans) if plan.time_seconds <= deadline_seconds]
    if not in_time:
        fastest = min(range(len(plans)), key=lambda number: plans[number].time_seconds)
        return DeadlinePlan(fastest, plans[fastest], None)
    slowest = max(in_time, key=lambda number: plans[number].time_seconds)
    return DeadlinePlan(slowest, plans[slowest], energy_until(plans[slowest], deadline_seconds, waiting_power_watts))


def energy_until(realised: Realised, deadline_seconds: float, waiting_power_watts: float) -> float:
    """Energy in joules of an iteration and of waiting for the deadline after it."""
    return realised.energy_joules + waiting_power_watts * (deadline_seconds - realised.time_seconds)
