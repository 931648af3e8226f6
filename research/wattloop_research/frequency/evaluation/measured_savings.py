"""Savings of measured pipelines against a baseline, without stragglers and beside one.

The published evaluation (Chung et al. 2024, tables 3 and 4) compares the fastest plan with the baseline,
and beside a straggler the plan that its rule chooses. A pipeline that ends before the straggler waits for
it, which costs the blocking power of each of its GPUs, the baseline too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattloop_planner.frequency.choice_rules import energy_until
from wattloop_planner.frequency.pipeline.plans import Realised


@dataclass(frozen=True)
class MeasuredPoint:
    """What a pipeline took in one run.

    Attributes:
        number: Number of the run; None for a row of a table.
        energy_error_joules: Standard error of the energy; NaN where it is not known.
    """

    number: int | None
    realised: Realised
    energy_error_joules: float = math.nan


@dataclass(frozen=True)
class IntrinsicSaving:
    """What a plan saves without stragglers.

    Attributes:
        saving_percent: Saved energy in percent of the baseline's.
        saving_error_percent: Its standard error, in points; NaN where an energy has none.
        slowdown_percent: Additional time in percent of the baseline's; 0 if the plan is faster, as published.
    """

    saving_percent: float
    saving_error_percent: float
    slowdown_percent: float


@dataclass(frozen=True)
class StragglerSaving:
    """What a plan saves beside a straggler."""

    plan: MeasuredPoint
    energy_joules: float
    base_energy_joules: float

    @property
    def saving_percent(self) -> float:
        """Saved energy in percent of the baseline's."""
        return saving_percent(self.base_energy_joules, self.energy_joules)


# Chooses one of the plans in time, of which there is at least one.
Choice = Callable[[Sequence[MeasuredPoint]], MeasuredPoint]


def slowest_in_time(in_time: Sequence[MeasuredPoint]) -> MeasuredPoint:
    """The slowest measured plan: waiting is paid until the straggler's end in any case."""
    return max(in_time, key=lambda plan: plan.realised.time_seconds)


def first_in_time(in_time: Sequence[MeasuredPoint]) -> MeasuredPoint:
    """The plan that was planned to be the slowest: the published rule for measured plans."""
    return in_time[0]


def least_energy_in_time(in_time: Sequence[MeasuredPoint]) -> MeasuredPoint:
    """The plan of least energy: the published rule for emulated plans."""
    return min(in_time, key=lambda plan: plan.realised.energy_joules)


def saving_percent(base_joules: float, joules: float) -> float:
    """Saved energy in percent of a baseline's."""
    return 100 * (1 - joules / base_joules)


def intrinsic_saving(base: MeasuredPoint, plan: MeasuredPoint) -> IntrinsicSaving:
    """What a plan saves without stragglers.

    Example:
        >>> base, plan = MeasuredPoint(1, Realised(2.0, 100.0), 1.0), MeasuredPoint(5, Realised(2.1, 90.0), 1.0)
        >>> found = intrinsic_saving(base, plan)
        >>> round(found.saving_percent, 6), round(found.saving_error_percent, 2), round(found.slowdown_percent, 6)
        (10.0, 1.35, 5.0)
    """
    ratio = plan.realised.energy_joules / base.realised.energy_joules
    of_plan = plan.energy_error_joules / base.realised.energy_joules
    of_base = ratio * base.energy_error_joules / base.realised.energy_joules
    slowdown = plan.realised.time_seconds / base.realised.time_seconds - 1
    return IntrinsicSaving(100 * (1 - ratio), 100 * math.hypot(of_plan, of_base), 100 * max(slowdown, 0.0))


def straggler_saving(
    base: MeasuredPoint, plans: Sequence[MeasuredPoint], slowdown: float, waiting_watts: float, choice: Choice
) -> StragglerSaving | None:
    """What a rule saves beside a straggler; None if no plan ends before it.

    Args:
        base: The baseline, which waits for the straggler.
        plans: The plans, from the one that was planned to be the slowest to the fastest.
        slowdown: Time of the straggler in times of the baseline.
        waiting_watts: Power of all GPUs while they wait.
        choice: The rule, for plans that end before the straggler.
    """
    deadline = base.realised.time_seconds * slowdown
    in_time = [plan for plan in plans if plan.realised.time_seconds <= deadline]
    if not in_time:
        return None
    chosen = choice(in_time)
    return StragglerSaving(
        chosen,
        energy_until(chosen.realised, deadline, waiting_watts),
        energy_until(base.realised, deadline, waiting_watts),
    )
