"""Chooses a plan while another pipeline is a straggler: the iteration may take as long as the straggler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattloop_planner.frequency.pipeline.plans import Realised

SLOWDOWNS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5)


@dataclass(frozen=True)
class DeadlinePlan:
    """The plan for a deadline.

    Attributes:
        plan: Index of the plan in the given sequence.
        realised: Time and energy of the plan.
        energy_until_deadline_joules: Energy of the plan and of waiting until the deadline; None if the plan
            misses the deadline.
    """

    plan: int
    realised: Realised
    energy_until_deadline_joules: float | None

    @property
    def meets_deadline(self) -> bool:
        """Whether the plan ends by the deadline."""
        return self.energy_until_deadline_joules is not None


def choose(plans: Sequence[Realised], deadline_seconds: float, waiting_power_watts: float) -> DeadlinePlan:
    """The slowest plan that meets the deadline or, if none does, the fastest plan.

    Waiting until the deadline also costs energy. Of the undominated plans that meet the deadline, the
    slowest therefore takes the least energy until then, which the plan of minimum energy may exceed.

    Args:
        plans: At least one plan, none dominated, in any order.
        deadline_seconds: When the straggler ends its iteration.
        waiting_power_watts: Stages times blocking power.
    """
    in_time = [number for number, plan in enumerate(plans) if plan.time_seconds <= deadline_seconds]
    if not in_time:
        fastest = min(range(len(plans)), key=lambda number: plans[number].time_seconds)
        return DeadlinePlan(fastest, plans[fastest], None)
    slowest = max(in_time, key=lambda number: plans[number].time_seconds)
    return DeadlinePlan(slowest, plans[slowest], energy_until(plans[slowest], deadline_seconds, waiting_power_watts))


def energy_until(realised: Realised, deadline_seconds: float, waiting_power_watts: float) -> float:
    """Energy in joules of an iteration and of waiting after it until the deadline."""
    return realised.energy_joules + waiting_power_watts * (deadline_seconds - realised.time_seconds)
