"""The thermal state of a window, from the power before and during it.

A hot GPU leaks more: at the same limit its work takes more energy, or more time once the limit slows
it. Temperature follows power with a lag of a minute or so, so a window's cost depends on the limits
before it. The thermal state here is the power, filtered with that lag (a first-order model of heat
flow). It needs no temperature sensor, which the agent does not offer to training processes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.power.windows import PowerWindow


@dataclass(frozen=True)
class ThermalState:
    """What the costs of a window may depend on besides its limit.

    Attributes:
        power_watts: Mean power of the window, with pauses: heat does not stop in a pause.
        excess_watts: Filtered power minus `power_watts`: how much hotter the GPU was than it gets if the
            limit stays.
        start: Share of the temperature before the first window that is left; it is not known.
        elapsed: Time of the window, from -0.5 for the first to 0.5 for the last, for a slow drift.
    """

    power_watts: float
    excess_watts: float
    start: float
    elapsed: float


def thermal_states(windows: Sequence[PowerWindow], time_constant_seconds: float) -> list[ThermalState]:
    """The thermal state of each window, for a time constant of the temperature.

    Args:
        windows: In order of time, at least one.
        time_constant_seconds: Time to 63 % of a change of the temperature.
    """
    powers = [_power(window) for window in windows]
    begin = windows[0].start.time_seconds
    span = max(windows[-1].end.time_seconds - begin, 1e-9)
    filtered = powers[0]
    previous = windows[0].start
    states = []
    for window, power in zip(windows, powers, strict=True):
        gap = window.start.time_seconds - previous.time_seconds
        if gap > 0:
            between = (window.start.energy_joules - previous.energy_joules) / gap
            filtered = between + (filtered - between) * math.exp(-gap / time_constant_seconds)
        length = window.end.time_seconds - window.start.time_seconds
        left = math.exp(-length / time_constant_seconds)
        mean_share = time_constant_seconds / length * (1 - left)
        middle = (window.start.time_seconds + window.end.time_seconds) / 2 - begin
        start = math.exp(-(window.start.time_seconds - begin) / time_constant_seconds) * mean_share
        states.append(ThermalState(power, (filtered - power) * mean_share, start, middle / span - 0.5))
        filtered = power + (filtered - power) * left
        previous = window.end
    return states


def _power(window: PowerWindow) -> float:
    length = window.end.time_seconds - window.start.time_seconds
    return (window.end.energy_joules - window.start.energy_joules) / length
