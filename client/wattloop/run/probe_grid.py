"""The plan of a training's probes, their grid in the order in which it is tried, and the choice among the trials. Pure.

The configuration in force is always tried first, so that the choice is never worse than to stay. Then come the
combinations that differ from it in one value, then those that differ in two, and so on; within each group in the
order of the plan's lists. A grid that is too large loses its end, and so does one whose time is spent.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from wattloop.arguments import number_between, whole_number
from wattloop.energy.cost import CostModel
from wattloop.errors import UsageError
from wattloop.printable import ascii_text, short_repr
from wattloop.run.micro_batches import micro_batches
from wattloop.wire.training_messages import (
    MAX_CHOSEN_CHARACTERS,
    MAX_PROBE_BATCH_SIZE,
    MAX_PROBE_NUMBER,
    MAX_PROBE_WATTS,
    MAX_PROBED_PARAMETERS,
    MAX_THRESHOLDS,
    MAX_TRIALS,
    ProbeChoice,
)

Item = TypeVar("Item")
MAX_VALUES = 64
MAX_COMBINATIONS = 4096
MAX_STEPS = 100_000
PARAMETER_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True)
class ProbePlan:
    """When a training probes, and what it tries.

    Attributes:
        at: Values of the target's metric at which the training probes, in any order: at the first evaluation at or
            beyond one, once each.
        batch_sizes: Global batch sizes to try beside the one in force.
        parameters: The values to try of each of these parameters of the job, beside those in force.
        power_limits_watts: Power limits of each GPU to try beside the one in force, in watts.
        steps: Measured optimizer steps of a trial.
        warm_up_steps: Steps of a trial before them, which are not measured.
        max_trials: Most trials at one threshold.
        max_time_percent: Most time of all trials, in percent of the time that the training itself has taken so far.

    Raises:
        UsageError: A value is out of range or repeats, or there are too few or too many combinations.

    Example:
        >>> ProbePlan(at=[0.5], parameters={"dropout": [0.1, 0.5]}).parameters
        {'dropout': ('0.1', '0.5')}
        >>> ProbePlan(at=[0.5, 0.5], batch_sizes=[32, 64])
        Traceback (most recent call last):
        wattloop.errors.UsageError: at has 0.5 twice; give each value once
    """

    at: Sequence[float]
    batch_sizes: Sequence[int] = ()
    parameters: Mapping[str, Sequence[object]] = field(default_factory=dict)
    power_limits_watts: Sequence[int] = ()
    steps: int = 20
    warm_up_steps: int = 3
    max_trials: int = 32
    max_time_percent: float = 10.0

    def __post_init__(self) -> None:
        expected = "a finite number, such as 0.5"
        at = [number_between(each, "a value of at", -MAX_PROBE_NUMBER, MAX_PROBE_NUMBER, expected) for each in self.at]
        sizes = [whole_number(each, "a batch size", 1, MAX_PROBE_BATCH_SIZE) for each in self.batch_sizes]
        limits = [whole_number(each, "a power limit", 1, MAX_PROBE_WATTS) for each in self.power_limits_watts]
        parameters = {name: _texts(name, values) for name, values in self.parameters.items()}
        lists: dict[str, tuple[Any, ...]] = {
            "at": _distinct("at", at, 1, MAX_THRESHOLDS),
            "batch_sizes": _distinct("batch_sizes", sizes, 0, MAX_VALUES),
            "power_limits_watts": _distinct("power_limits_watts", limits, 0, MAX_VALUES),
        }
        _distinct("parameters", parameters, 0, MAX_PROBED_PARAMETERS)
        for name, value in {**lists, "parameters": parameters}.items():
            object.__setattr__(self, name, value)
        whole_number(self.steps, "steps", 1, MAX_STEPS)
        whole_number(self.warm_up_steps, "warm_up_steps", 0, MAX_STEPS)
        whole_number(self.max_trials, "max_trials", 2, MAX_TRIALS)
        number_between(self.max_time_percent, "max_time_percent", 1, 100, "from 1 to 100")
        counts = [len(each) for each in (sizes, limits, *parameters.values())]
        combinations = math.prod(max(each, 1) for each in counts)
        if not 2 <= combinations <= MAX_COMBINATIONS:
            raise UsageError(
                f"batch_sizes, parameters and power_limits_watts have {combinations} combinations; give 2 to "
                f"{MAX_COMBINATIONS}"
            )


def _texts(name: str, values: Iterable[object]) -> tuple[str, ...]:
    """The values of a parameter as the texts that a training gets."""
    if not PARAMETER_NAME.fullmatch(name):
        raise UsageError(f"parameters has {short_repr(name)}; it must be a name of spec.parameters of the job")
    if isinstance(values, str):
        raise UsageError(f"parameters has {short_repr(values)} for {name}; it must be a list of values")
    return _distinct(f"parameters, {name},", [str(each) for each in values], 1, MAX_VALUES)


def _distinct(name: str, values: Iterable[Item], minimum: int, maximum: int) -> tuple[Item, ...]:
    found = tuple(values)
    if not minimum <= len(found) <= maximum:
        raise UsageError(f"{name} has {len(found)} values; give {minimum} to {maximum}")
    twice = next((each for place, each in enumerate(found) if each in found[:place]), None)
    if twice is not None:
        raise UsageError(f"{name} has {twice} twice; give each value once")
    return found


@dataclass(frozen=True)
class ProbedConfiguration:
    """What a probe varies.

    Attributes:
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


def grid(
    plan: ProbePlan, current: ProbedConfiguration, limits: Sequence[int], ranks: int = 1
) -> list[ProbedConfiguration]:
    """All combinations of the plan's values and those in force, in the order in which they are tried.

    Args:
        plan: The plan.
        current: The configuration in force.
        limits: Those of the plan's limits that may be held.
        ranks: Processes that share a batch; a batch size that does not divide is rounded down.

    Example:
        >>> plan = ProbePlan(at=(0.5,), batch_sizes=(32, 64), power_limits_watts=(300,))
        >>> [str(each) for each in grid(plan, ProbedConfiguration(32, (), 400.0), (300,))]
        ['batch size 32, 400 W', 'batch size 32, 300 W', 'batch size 64, 400 W', 'batch size 64, 300 W']
    """
    sizes = dict.fromkeys(micro_batches(each, ranks).global_batch_size for each in plan.batch_sizes)
    axes: tuple[list[Any], ...] = (
        _axis(current.batch_size, tuple(sizes)),
        *(_axis(each, [(each[0], value) for value in plan.parameters[each[0]]]) for each in current.parameters),
        _axis(current.power_limit_watts, limits),
    )
    combinations = (ProbedConfiguration(size, tuple(rest[:-1]), rest[-1]) for size, *rest in itertools.product(*axes))
    return sorted(combinations, key=current.differences)


def _axis(current: Item, values: Sequence[Item]) -> list[Item]:
    return [current, *(each for each in values if each != current)]


def left_out(plan: ProbePlan, limits: Sequence[int], allowed_watts: tuple[float, float] | None) -> list[str]:
    """Why some power limits of a plan are not tried; empty if all are."""
    outside = [f"{each} W" for each in plan.power_limits_watts if each not in limits]
    if not outside:
        return []
    lowest, highest = allowed_watts or (0.0, 0.0)
    allowed = "no power limit may be held" if allowed_watts is None else f"{lowest:g} to {highest:g} W may be held"
    return [f"power_limits_watts: {', '.join(outside)} is not tried: {allowed}"]


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
    """What trials have cost so far."""

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
