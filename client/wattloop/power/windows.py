"""A measurement window: steps under one power limit, with their energy and time, and its thermal state.

A window lasts long enough for a small error, because energy counters advance only every 20 to 100 ms.

A hot GPU leaks more, and its temperature follows power with a lag of a minute or so. The thermal state here is the
power, filtered with that lag: a first-order model of heat flow, which needs no temperature sensor.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

MIN_WINDOW_SECONDS = 5.0
WARM_UP_STEPS = 1


@dataclass(frozen=True)
class Totals:
    """Cumulative energy of all GPUs of the process, and the time of the reading."""

    energy_joules: float
    time_seconds: float


@dataclass(frozen=True)
class PowerWindow:
    """A completed window.

    Attributes:
        energy_joules: Energy of its steps; without what was used in pauses.
        time_seconds: Duration of its steps; without pauses.
        samples: Number of samples of its steps.
    """

    power_limit_watts: float
    start: Totals
    end: Totals
    energy_joules: float
    time_seconds: float
    samples: float


class WindowRecorder:
    """Decides at which steps the totals are read, and forms a window from them.

    Call `step_done` after each step. If it returns True, read the totals and pass them to `add_totals`,
    which returns the window once it is long enough.

    Attributes:
        samples: Number of samples counted in the window. Ranks that measure together replace it by what they agree on.
    """

    def __init__(self, power_limit_watts: float) -> None:
        self._limit = power_limit_watts
        self.restart()

    def restart(self) -> None:
        """Discard the window and begin it again, after a warm-up."""
        self._start: Totals | None = None
        self._resumed: Totals | None = None
        self._energy_joules = self._time_seconds = 0.0
        self._steps = 0
        self.samples = 0.0
        self._steps_until_read = WARM_UP_STEPS

    @property
    def has_begun(self) -> bool:
        """Whether the window has begun."""
        return self._start is not None

    @property
    def is_open(self) -> bool:
        """Whether the window has begun and is not paused."""
        return self._resumed is not None

    def step_done(self, samples: float) -> bool:
        """Count one optimizer step on this number of samples; returns whether to read the totals now."""
        self._steps += 1
        self.samples += samples
        return self._steps >= self._steps_until_read

    def add_totals(self, totals: Totals) -> PowerWindow | None:
        """Begin the window with these totals, complete it, or estimate how many more steps it needs."""
        if self._start is None:
            self.restart()
            self._start = self._resumed = totals
            self._steps_until_read = 1
            return None
        if self._resumed is None:
            # Steps since a pause that was not resumed were not measured.
            self.restart()
            return None
        energy = self._energy_joules + totals.energy_joules - self._resumed.energy_joules
        seconds = self._time_seconds + totals.time_seconds - self._resumed.time_seconds
        if seconds >= MIN_WINDOW_SECONDS:
            return PowerWindow(self._limit, self._start, totals, energy, seconds, self.samples)
        per_step = seconds / self._steps
        more = math.ceil((MIN_WINDOW_SECONDS - seconds) / per_step) if per_step > 0 else self._steps
        # At most doubled, because the first steps after a change of limit may not be typical.
        self._steps_until_read = self._steps + max(1, min(more, self._steps))
        return None

    def pause(self, totals: Totals) -> None:
        """Exclude what follows, such as an evaluation, until `resume`."""
        if self._resumed is not None:
            self._energy_joules += totals.energy_joules - self._resumed.energy_joules
            self._time_seconds += totals.time_seconds - self._resumed.time_seconds
            self._resumed = None

    def resume(self, totals: Totals) -> None:
        """Continue the window after a pause."""
        if self._start is not None:
            self._resumed = totals


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
    powers = [
        (each.end.energy_joules - each.start.energy_joules) / (each.end.time_seconds - each.start.time_seconds)
        for each in windows
    ]
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
