"""Where a GPU's cumulative energy stood at a moment, and the energy between two such moments."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A GPU's account at a moment.

    Attributes:
        energy_millijoules: Cumulative.
        uncertainty_millijoules: How far that moment's energy may be off.
        doubt_millijoules: Cumulative: how much of the energy until then was estimated over what no counter told.
        noise_square_millijoules: Cumulative: the errors of integrated power, which are independent, in squares.
        time_seconds: The GPU's energy clock.
    """

    energy_millijoules: float
    uncertainty_millijoules: float
    doubt_millijoules: float
    noise_square_millijoules: float
    time_seconds: float

    def not_before(self, other: Mark) -> Mark:
        """This mark, or where it would be less than an older one (both were estimated), with the older one's values."""
        return Mark(
            max(self.energy_millijoules, other.energy_millijoules),
            self.uncertainty_millijoules,
            max(self.doubt_millijoules, other.doubt_millijoules),
            max(self.noise_square_millijoules, other.noise_square_millijoules),
            max(self.time_seconds, other.time_seconds),
        )


def energy_from(start: Mark, end: Mark) -> tuple[float, float]:
    """The energy between two marks and its uncertainty, in millijoules.

    Example:
        >>> energy_from(Mark(100.0, 1.0, 0.0, 0.0, 0.0), Mark(1100.0, 2.0, 50.0, 16.0, 4.0))
        (1000.0, 57.0)
    """
    doubt = end.doubt_millijoules - start.doubt_millijoules
    noise = math.sqrt(max(end.noise_square_millijoules - start.noise_square_millijoules, 0.0))
    uncertainty = start.uncertainty_millijoules + end.uncertainty_millijoules + doubt + noise
    return end.energy_millijoules - start.energy_millijoules, uncertainty


def start_between(low: Mark, high: Mark) -> Mark:
    """The mark of a begin that was somewhere between two: in the middle, uncertain by half, all doubt behind it."""
    return _between(low, high, low)


def end_between(low: Mark, high: Mark) -> Mark:
    """The mark of an end that was somewhere between two: in the middle, uncertain by half, all doubt before it."""
    return _between(low, high, high)


def end_at_latest(low: Mark, high: Mark) -> Mark:
    """The mark of an end somewhere between two where nobody else can have used the GPU: all of it was the one's."""
    spread = high.energy_millijoules - low.energy_millijoules
    return Mark(
        high.energy_millijoules,
        spread + max(low.uncertainty_millijoules, high.uncertainty_millijoules),
        high.doubt_millijoules,
        high.noise_square_millijoules,
        high.time_seconds,
    )


def _between(low: Mark, high: Mark, doubts: Mark) -> Mark:
    half = (high.energy_millijoules - low.energy_millijoules) / 2
    return Mark(
        low.energy_millijoules + half,
        half + max(low.uncertainty_millijoules, high.uncertainty_millijoules),
        doubts.doubt_millijoules,
        doubts.noise_square_millijoules,
        (low.time_seconds + high.time_seconds) / 2,
    )
