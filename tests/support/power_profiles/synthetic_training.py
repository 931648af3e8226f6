"""A training on paper: windows with known energy and time at each limit, noise and drift."""

import math
import random
from dataclasses import dataclass

from wattloop.power.selectors import MeasuredLimit
from wattloop.power.sequential_design import SequentialDesign
from wattloop.power.windows import PowerWindow, Totals


@dataclass
class SyntheticTraining:
    """Windows of about `seconds` with relative noise, whose energy drifts from the first to the last.

    Attributes:
        truth: Energy and time of one sample at each limit.
        noise: Relative standard deviation of a window's energy and of its time.
        drift_per_window: Relative change of energy and time from window to window.
    """

    truth: list[MeasuredLimit]
    noise: float
    seed: int
    seconds: float = 6.0
    drift_per_window: float = 0.0

    def __post_init__(self) -> None:
        self._generator = random.Random(self.seed)
        self._totals = Totals(0.0, 0.0)
        self._windows = 0

    def window(self, limit_watts: float) -> PowerWindow:
        """The next window under a limit."""
        true = next(each for each in self.truth if each.power_limit_watts == limit_watts)
        samples = self.seconds / true.time_seconds
        drift = math.exp(self.drift_per_window * self._windows)
        seconds = self.seconds * drift * math.exp(self._generator.gauss(0.0, self.noise))
        energy = true.energy_joules * samples * drift * math.exp(self._generator.gauss(0.0, self.noise))
        start = self._totals
        self._totals = Totals(start.energy_joules + energy, start.time_seconds + seconds)
        self._windows += 1
        return PowerWindow(limit_watts, start, self._totals, energy, seconds, samples)

    def carry_out(self, design: SequentialDesign) -> SequentialDesign:
        """Measure until the design ends."""
        while design.reason is None:
            design.add(self.window(design.limit_watts))
        return design
