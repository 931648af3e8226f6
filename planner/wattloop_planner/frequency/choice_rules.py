"""Chooses the point of a frontier at which a pipeline runs, by a rule, and while another pipeline is a straggler."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.energy.cost import CostModel
from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.plans import Realised

# A time that is longer by less is not lost: measurements differ by more.
SAME_TIME = 1e-3
# Sums of the same times in another order differ by less.
ROUNDING = 1e-9
# Of stragglers that a result lists, over an iteration at maximum clocks.
SLOWDOWNS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5)


@dataclass(frozen=True)
class FastestRule:
    """Minimum energy among the plans that take no longer, within 0.1 %, than an iteration at maximum clocks."""


@dataclass(frozen=True)
class Deadline:
    """Minimum energy among the plans that take at most this time; the fastest plan if none does."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise UsageError(f"the deadline is {self.seconds:g} s; it must be a finite time above 0")


@dataclass(frozen=True)
class CostRule:
    """Minimum cost ``η · energy + (1 − η) · maximum power · time`` of an iteration.

    Attributes:
        model: Weight and maximum power. The power is of the same GPUs as the energy of the plans.
    """

    model: CostModel


Rule = FastestRule | Deadline | CostRule


@dataclass(frozen=True)
class ChosenPoint:
    """The point at which a pipeline runs.

    Attributes:
        plan: Index of the plan in the given sequence.
        in_time: Whether the plan is within the deadline or, with `FastestRule`, within the time at maximum clocks.
        for_straggler: Whether a straggler's time, not the rule, determined the plan.
    """

    plan: int
    realised: Realised
    in_time: bool
    for_straggler: bool


def choose_point(
    plans: Sequence[Realised],
    rule: Rule,
    *,
    max_clocks: Realised,
    straggler_seconds: float | None = None,
) -> ChosenPoint:
    """The plan by a rule or, if it is slower, the slowest plan that a straggler does not wait for.

    Without a straggler an iteration ends when the pipeline ends, so the energy counts until then, and a plan
    beyond the time of minimum energy is never chosen. A straggler makes all pipelines wait until its own end.
    The energy of waiting is then spent in any case, and the slowest plan in time takes the least energy
    (docs/internals/frequency.md, "Problem"). A straggler that is faster than the rule's plan changes nothing.

    Args:
        plans: At least one plan, none dominated, in any order.
        rule: How the point is chosen without a straggler.
        max_clocks: An iteration with every operation at its highest clock.
        straggler_seconds: Time of an iteration of the slowest pipeline; None without a straggler.

    Raises:
        UsageError: There is no plan.

    Example:
        >>> plans = [Realised(1.3, 98.0), Realised(1.2, 90.0), Realised(1.0, 100.0), Realised(0.9, 120.0)]
        >>> chosen = choose_point(plans, FastestRule(), max_clocks=Realised(1.0, 150.0))
        >>> chosen.plan, chosen.in_time
        (2, True)
        >>> choose_point(plans, FastestRule(), max_clocks=Realised(1.0, 150.0), straggler_seconds=1.5).plan
        0
    """
    if not plans:
        raise UsageError("there is no plan to choose from; plan the pipeline first")
    number, in_time = _by_rule(plans, rule, max_clocks)
    if straggler_seconds is not None:
        slower = _slowest_within(plans, straggler_seconds)
        if slower is not None and plans[slower].time_seconds > plans[number].time_seconds:
            return ChosenPoint(slower, plans[slower], in_time, for_straggler=True)
    return ChosenPoint(number, plans[number], in_time, for_straggler=False)


def _by_rule(plans: Sequence[Realised], rule: Rule, max_clocks: Realised) -> tuple[int, bool]:
    numbers = range(len(plans))
    match rule:
        case CostRule(model):
            return min(
                numbers,
                key=lambda number: (
                    model.cost_joules(plans[number].energy_joules, plans[number].time_seconds),
                    plans[number].time_seconds,
                ),
            ), True
        case Deadline(seconds):
            limit = seconds
        case FastestRule():
            limit = max_clocks.time_seconds * (1 + SAME_TIME)
    in_time = [number for number in numbers if plans[number].time_seconds <= limit * (1 + ROUNDING)]
    if not in_time:
        return _fastest(plans), False
    return min(in_time, key=lambda number: (plans[number].energy_joules, plans[number].time_seconds)), True


@dataclass(frozen=True)
class DeadlinePlan:
    """The plan for a deadline.

    Attributes:
        plan: Index of the plan in the given sequence.
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
    slowest = _slowest_within(plans, deadline_seconds)
    if slowest is None:
        fastest = _fastest(plans)
        return DeadlinePlan(fastest, plans[fastest], None)
    return DeadlinePlan(slowest, plans[slowest], energy_until(plans[slowest], deadline_seconds, waiting_power_watts))


def _slowest_within(plans: Sequence[Realised], seconds: float) -> int | None:
    in_time = (number for number, plan in enumerate(plans) if plan.time_seconds <= seconds)
    return max(in_time, key=lambda number: plans[number].time_seconds, default=None)


def _fastest(plans: Sequence[Realised]) -> int:
    return min(range(len(plans)), key=lambda number: plans[number].time_seconds)


def energy_until(realised: Realised, deadline_seconds: float, waiting_power_watts: float) -> float:
    """Energy in joules of an iteration and of waiting after it until the deadline."""
    return realised.energy_joules + waiting_power_watts * (deadline_seconds - realised.time_seconds)
