"""Measuring power limits during training, one after another, without a cost of its own on most steps.

Zeus (NSDI '23, section 4.2): the first epoch of a batch size is cut into windows, each under another limit. Here a
window lasts until the energy counter, which moves only every 20 to 100 ms, gives a small error; windows go on into the
next epoch where an epoch is short, and between a window's edges no step reads anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattloop.messages import LimitMeasurement

MIN_WINDOW_SECONDS = 5.0
MAX_LIMITS = 9
WARM_UP_STEPS = 1


@dataclass(frozen=True)
class Totals:
    """Cumulative energy of all GPUs of the process, and the clock it was read at."""

    energy_joules: float
    time_seconds: float


def limits_to_measure(least_watts: float, most_watts: float) -> tuple[float, ...]:
    """The limits to measure: from the maximum down, 25 W apart, or further where that would be more than nine.

    Args:
        least_watts: The lowest limit that may be held.
        most_watts: The highest.

    Returns:
        Limits in falling order, the maximum first: what the default configuration costs is always measured.

    Example:
        >>> limits_to_measure(100, 250)
        (250.0, 225.0, 200.0, 175.0, 150.0, 125.0, 100.0)
    """
    span = most_watts - least_watts
    step = 25.0 * max(1, math.ceil(span / 25.0 / (MAX_LIMITS - 1)))
    return tuple(most_watts - step * index for index in range(int(span // step) + 1))


class LimitProfiling:
    """The state of one measurement of all limits: told of each step, says when to read and which limit to hold next.

    Use: hold `limit_watts`; call `step_done` after each step; where it answers True, read the totals, give them to
    `read`, and hold `limit_watts` again, which may have changed; until `finished`.
    """

    def __init__(self, limits_watts: tuple[float, ...]) -> None:
        self._limits = limits_watts
        self._measured: list[tuple[float, Totals, float]] = []
        self._start: Totals | None = None
        self._steps = 0
        self._samples = 0.0
        self._steps_until_read = WARM_UP_STEPS

    @property
    def finished(self) -> bool:
        """Whether every limit has been measured."""
        return len(self._measured) == len(self._limits)

    @property
    def limit_watts(self) -> float:
        """The limit to hold now."""
        return self._limits[min(len(self._measured), len(self._limits) - 1)]

    def step_done(self, samples: float) -> bool:
        """Count one optimizer step on so many samples; answers whether the totals are to be read now."""
        if self.finished:
            return False
        self._steps += 1
        self._samples += samples
        return self._steps >= self._steps_until_read

    def read(self, totals: Totals) -> None:
        """Take the totals: the start of a window, its end, or a sign of how many steps it still needs."""
        if self._start is None:
            self._start, self._steps, self._samples, self._steps_until_read = totals, 0, 0.0, 1
            return
        elapsed = totals.time_seconds - self._start.time_seconds
        if elapsed < MIN_WINDOW_SECONDS:
            per_step = elapsed / self._steps
            more = math.ceil((MIN_WINDOW_SECONDS - elapsed) / per_step) if per_step > 0 else self._steps
            # At most doubled: the first steps after a change of limit are no sure guide to the rest.
            self._steps_until_read = self._steps + max(1, min(more, self._steps))
            return
        spent = Totals(totals.energy_joules - self._start.energy_joules, elapsed)
        self._measured.append((self.limit_watts, spent, self._samples))
        self.restart_window()

    def restart_window(self) -> None:
        """Begin the window of the limit anew: nothing of it so far counts."""
        self._start, self._steps, self._samples, self._steps_until_read = None, 0, 0.0, WARM_UP_STEPS

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """What has been measured so far.

        Args:
            samples_per_epoch: Turns counted samples into parts of an epoch.
        """
        return tuple(
            LimitMeasurement(limit, spent.energy_joules, spent.time_seconds, samples / samples_per_epoch)
            for limit, spent, samples in self._measured
        )
