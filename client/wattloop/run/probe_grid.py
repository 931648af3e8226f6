"""The grid of a probe, the order in which it is tried, and the choice among the trials. Pure.

The configuration in force is always tried first, so that the choice is never worse than to stay. Then come the
combinations that differ from it in one value, then those that differ in two, and so on; within each group in the
order of the job's lists. A grid that is too large loses its end, and so does one whose time is spent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from wattloop.energy.cost import CostModel
from wattloop.printable import ascii_text
from wattloop.wire.probe_messages import MAX_CHOSEN_CHARACTERS, ProbeChoice, ProbePlan

Item = TypeVar("Item")


@dataclass(frozen=True)
class ProbedConfiguration:
    """What a probe varies.

    Attributes:
        batch_size: The global batch size.
        parameters: Names and values of the parameters of the plan.
        power_limit_watts: The limit of each GPU; None: none is held.
    """

    batch_size: int
    parameters: tuple[tuple[str, str], ...] = ()
    power_limit_watts: float | None = None

    def __str__(self) -> str:
        limit = "" if self.power_limit_watts is None else f", {self.power_limit_watts:g} W"
        values = "".join(f", {name}={value}" for name, value in self.parameters)
        return f"batch size {self.batch_size}{values}{limit}"

    def differences(self, other: ProbedConfiguration) -> int:
        """In how many values it differs from another one."""
        pairs = [(self.batch_size, other.batch_size), (self.power_limit_watts, other.power_limit_watts)]
        return sum(one != another for one, another in [*pairs, *zip(self.parameters, other.parameters, strict=True)])

    def choice(self, threshold: float, trials: int, combinations: int) -> ProbeChoice:
        """It as the choice of a probe, in the form of a report."""
        values = (ascii_text(f"{name}={value}", MAX_CHOSEN_CHARACTERS) for name, value in self.parameters)
        return ProbeChoice(threshold, self.batch_size, tuple(values), self.power_limit_watts, trials, combinations)


def grid(plan: ProbePlan, current: ProbedConfiguration) -> list[ProbedConfiguration]:
    """All combinations of the plan's values and those in force, in the order in which they are tried.

    Example:
        >>> plan = ProbePlan(at=(0.5,), batch_sizes=(32, 64), power_limits_watts=(300,))
        >>> [str(each) for each in grid(plan, ProbedConfiguration(32, (), 400.0))]
        ['batch size 32, 400 W', 'batch size 32, 300 W', 'batch size 64, 400 W', 'batch size 64, 300 W']
    """
    values = {each.name: each.values for each in plan.parameters}
    axes: tuple[list[Any], ...] = (
        _axis(current.batch_size, plan.batch_sizes),
        *(_axis((name, value), [(name, each) for each in values.get(name, ())]) for name, value in current.parameters),
        _axis(current.power_limit_watts, plan.power_limits_watts),
    )
    combinations = (ProbedConfiguration(size, tuple(rest[:-1]), rest[-1]) for size, *rest in itertools.product(*axes))
    return sorted(combinations, key=current.differences)


def _axis(current: Item, values: Sequence[Item]) -> list[Item]:
    return [current, *(each for each in values if each != current)]


def left_out(plan: ProbePlan, limits: Sequence[int], allowed_watts: tuple[float, float] | None) -> list[str]:
    """Why some power limits of a plan are not tried; empty if all are.

    Args:
        plan: The plan.
        limits: Those of its limits that are tried.
        allowed_watts: The lowest and the highest limit that may be held; None for no limit.
    """
    outside = [f"{each} W" for each in plan.power_limits_watts if each not in limits]
    if not outside:
        return []
    lowest, highest = allowed_watts or (0.0, 0.0)
    allowed = "no power limit may be held" if allowed_watts is None else f"{lowest:g} to {highest:g} W may be held"
    return [f"powerLimits: {', '.join(outside)} is not tried: {allowed}"]


@dataclass(frozen=True)
class Trial:
    """A configuration that was tried on a copy.

    Attributes:
        configuration: What was tried.
        energy_joules: Energy of the measured steps, on the GPUs of all ranks; None if it was not measured.
        time_seconds: Their time; None together with the energy.
        loss_change: How much all steps changed the loss, below 0 for progress; None if it was not measured.
        steps_per_measured: All steps of the trial divided by the measured ones.
    """

    configuration: ProbedConfiguration
    energy_joules: float | None = None
    time_seconds: float | None = None
    loss_change: float | None = None
    steps_per_measured: float = 1.0

    def cost_joules(self, model: CostModel) -> float:
        """What the loss costs to lower by 1; infinite without a measurement, or if it did not fall.

        Example:
            >>> Trial(ProbedConfiguration(32), 100.0, 1.0, -0.5).cost_joules(CostModel(0.5, 300.0))
            400.0
        """
        energy, time, change = self.energy_joules, self.time_seconds, self.loss_change
        if energy is None or time is None or change is None or energy <= 0 or time <= 0 or not change < 0:
            return math.inf
        return self.steps_per_measured * model.cost_joules(energy, time) / -change


def cheapest(trials: Sequence[Trial], model: CostModel) -> Trial | None:
    """The trial of least cost, the first of equal ones; None if no trial has a cost."""
    best = min(trials, key=lambda trial: trial.cost_joules(model), default=None)
    return None if best is None or math.isinf(best.cost_joules(model)) else best


@dataclass(frozen=True)
class ProbeCost:
    """What trials have cost so far.

    Attributes:
        trials: Their number.
        energy_joules: Their energy, with that of copies and losses.
        time_seconds: Their time.
        longest_seconds: Time of the longest of them.
    """

    trials: int = 0
    energy_joules: float = 0.0
    time_seconds: float = 0.0
    longest_seconds: float = 0.0

    def with_trial(self, energy_joules: float, time_seconds: float) -> ProbeCost:
        """The cost after one more trial; clocks and counters of ranks never make it less."""
        return replace(
            self,
            trials=self.trials + 1,
            energy_joules=self.energy_joules + max(energy_joules, 0.0),
            time_seconds=self.time_seconds + max(time_seconds, 0.0),
            longest_seconds=max(self.longest_seconds, time_seconds),
        )

    def seconds_left(self, elapsed_seconds: float, max_percent: float) -> float:
        """How much longer trials may take, after this time of training and trials.

        Example:
            >>> ProbeCost(2, 50.0, 4.0).seconds_left(104.0, 10.0)
            6.0
        """
        return max_percent / 100 * max(elapsed_seconds - self.time_seconds, 0.0) - self.time_seconds
