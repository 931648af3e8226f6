"""Selects a power limit from the measurements of each limit.

Zeus (NSDI '23), section 4.2, with the GPUs of all ranks counted. A cost that omits the GPUs of other
ranks gives time too little weight and selects limits that are far too low.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

from wattloop.arguments import number_between
from wattloop.energy.cost import CostModel
from wattloop.errors import UsageError


@dataclass(frozen=True)
class MeasuredLimit:
    """Energy and time of the same work at one power limit.

    Attributes:
        power_limit_watts: The limit of each GPU, in watts.
        energy_joules: Energy of all GPUs of all ranks, in joules.
        time_seconds: Duration of the slowest rank, in seconds.
        gpus: Number of GPUs of all ranks.

    Raises:
        UsageError: A value is not positive and finite.
    """

    power_limit_watts: float
    energy_joules: float
    time_seconds: float
    gpus: int = 1

    def __post_init__(self) -> None:
        # A sequential design makes thousands of them after each window.
        if (
            0 < self.power_limit_watts < math.inf
            and 0 < self.energy_joules < math.inf
            and 0 < self.time_seconds < math.inf
            and 0 < self.gpus < math.inf
        ):
            return
        for name in ("power_limit_watts", "energy_joules", "time_seconds", "gpus"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise UsageError(f"a measurement at {self.power_limit_watts} W has {name} {value}; it must be positive")


class Selector(Protocol):
    """Selects one of several measurements; of equal ones that of the lowest power limit.

    Any object with this method is a selector. It may also have the method of `ToleratingSelector`.
    """

    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        """The measurement whose power limit to hold.

        Raises:
            UsageError: There is no measurement, or there are two of the same power limit.
        """
        ...


@runtime_checkable
class ToleratingSelector(Protocol):
    """A selector that knows when a measurement is good enough."""

    def is_worse(self, chosen: MeasuredLimit, measurements: Sequence[MeasuredLimit], margin: float) -> bool:
        """Whether another of the measurements is better than the chosen one by more than a relative margin."""
        ...


def comparison(selector: Selector) -> Callable[[MeasuredLimit, Sequence[MeasuredLimit], float], bool]:
    """Says whether another measurement is better than the chosen one by more than a relative margin.

    For a selector without `ToleratingSelector.is_worse`, that is the case if the measurement that it
    selects differs from the chosen one by more than the margin in energy or in time. To look for the
    method takes as long as a comparison, so callers keep the result.
    """
    return selector.is_worse if isinstance(selector, ToleratingSelector) else partial(_differs, selector)


def _differs(selector: Selector, chosen: MeasuredLimit, measurements: Sequence[MeasuredLimit], margin: float) -> bool:
    selected = selector.select(measurements)
    return any(
        not one / (1 + margin) <= other <= one * (1 + margin)
        for one, other in (
            (selected.energy_joules, chosen.energy_joules),
            (selected.time_seconds, chosen.time_seconds),
        )
    )


@dataclass(frozen=True)
class Energy:
    """Selects the lowest energy."""

    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        """The measurement with the lowest energy."""
        return min(_checked(measurements), key=lambda m: m.energy_joules)

    def is_worse(self, chosen: MeasuredLimit, measurements: Sequence[MeasuredLimit], margin: float) -> bool:
        """Whether another measurement has less energy by more than the margin."""
        return chosen.energy_joules > (1 + margin) * min(m.energy_joules for m in measurements)


@dataclass(frozen=True)
class Time:
    """Selects the lowest time."""

    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        """The measurement with the lowest time."""
        return min(_checked(measurements), key=lambda m: m.time_seconds)

    def is_worse(self, chosen: MeasuredLimit, measurements: Sequence[MeasuredLimit], margin: float) -> bool:
        """Whether another measurement has less time by more than the margin."""
        return chosen.time_seconds > (1 + margin) * min(m.time_seconds for m in measurements)


@dataclass(frozen=True)
class Cost:
    """Selects the lowest cost η·energy + (1−η)·MaxPower·time. MaxPower is the highest limit measured, times the GPUs.

    Attributes:
        eta: Weight of energy, 0 to 1.
        max_power_watts: Maximum power limit of one GPU; None: the highest limit measured.

    Raises:
        UsageError: A value is out of range.
    """

    eta: float
    max_power_watts: float | None = None

    def __post_init__(self) -> None:
        number_between(self.eta, "eta", 0, 1, "from 0 to 1, such as 0.5")
        if self.max_power_watts is not None:
            number_between(self.max_power_watts, "max_power_watts", 1, math.inf, "a finite number of at least 1")

    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        """The measurement with the lowest cost."""
        known = _checked(measurements)
        highest = self._max_power_watts(known)
        return min(known, key=lambda m: self._cost_joules(m, highest))

    def is_worse(self, chosen: MeasuredLimit, measurements: Sequence[MeasuredLimit], margin: float) -> bool:
        """Whether another measurement has a lower cost by more than the margin."""
        highest = self._max_power_watts(measurements)
        least = min([self._cost_joules(m, highest) for m in measurements])
        return self._cost_joules(chosen, highest) > (1 + margin) * least

    def cost_joules(self, measurement: MeasuredLimit, measurements: Sequence[MeasuredLimit]) -> float:
        """Cost of one of the measurements, in joules."""
        return self._cost_joules(measurement, self._max_power_watts(measurements))

    def _max_power_watts(self, measurements: Sequence[MeasuredLimit]) -> float:
        return self.max_power_watts or max(m.power_limit_watts for m in measurements)

    def _cost_joules(self, measurement: MeasuredLimit, max_power_watts: float) -> float:
        model = CostModel(self.eta, max_power_watts * measurement.gpus)
        return model.cost_joules(measurement.energy_joules, measurement.time_seconds)


@dataclass(frozen=True)
class MaxSlowdown:
    """Selects the lowest limit whose time is at most ``factor`` times that of the highest limit measured.

    Attributes:
        factor: At least 1.

    Raises:
        UsageError: The factor is less than 1.
    """

    factor: float

    def __post_init__(self) -> None:
        number_between(self.factor, "the slowdown factor", 1, math.inf, "at least 1, such as 1.1 for 10 % slower")

    def select(self, measurements: Sequence[MeasuredLimit]) -> MeasuredLimit:
        """The measurement of the lowest limit within the slowdown."""
        known = _checked(measurements)
        return next(m for m in known if self.keeps_bound(m, known))

    def keeps_bound(self, chosen: MeasuredLimit, measurements: Sequence[MeasuredLimit]) -> bool:
        """Whether the chosen one is fast enough."""
        highest = max(measurements, key=lambda m: m.power_limit_watts)
        return chosen.time_seconds <= self.factor * highest.time_seconds

    def is_worse(self, chosen: MeasuredLimit, measurements: Sequence[MeasuredLimit], margin: float) -> bool:
        """Whether the chosen one is too slow by more than the margin, or a lower limit is fast enough by as much."""
        known = _checked(measurements)
        bound = self.factor * known[-1].time_seconds
        lower = (m for m in known if m.power_limit_watts < chosen.power_limit_watts)
        return chosen.time_seconds > (1 + margin) * bound or any(m.time_seconds * (1 + margin) <= bound for m in lower)


def selector_named(name: str, *, eta: float, max_slowdown_percent: float) -> Selector:
    """The selector for a manifest's `spec.power.selector`.

    Args:
        name: Energy or MaxSlowdown; any other value selects by Cost, the default.
        eta: Weight of energy, for Cost.
        max_slowdown_percent: Allowed slowdown from the highest limit, for MaxSlowdown.

    Example:
        >>> selector_named("MaxSlowdown", eta=0.5, max_slowdown_percent=50)
        MaxSlowdown(factor=1.5)
    """
    match name:
        case "Energy":
            return Energy()
        case "MaxSlowdown":
            return MaxSlowdown(1 + max_slowdown_percent / 100)
        case _:
            return Cost(eta)


def _checked(measurements: Sequence[MeasuredLimit]) -> list[MeasuredLimit]:
    """The measurements by rising power limit."""
    if not measurements:
        raise UsageError("there is no measurement to select a power limit from; at least one is needed")
    ordered = sorted(measurements, key=lambda m: m.power_limit_watts)
    for one, other in itertools.pairwise(ordered):
        if one.power_limit_watts == other.power_limit_watts:
            raise UsageError(
                f"power limit {one.power_limit_watts:g} W was measured twice; give one measurement per limit"
            )
    return ordered
