"""Measures power limits during training, one after another, with no overhead on most steps.

Zeus (NSDI '23, section 4.2) divides the first epoch of a batch size into windows, each under another
limit. Here a window lasts long enough for a small error, because energy counters advance only every 20
to 100 ms. Windows continue into the next epoch if an epoch is short. Within a window no step reads a
counter.
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
    """Cumulative energy of all GPUs of the process, and the time of the reading."""

    energy_joules: float
    time_seconds: float


def limits_to_measure(min_watts: float, max_watts: float) -> tuple[float, ...]:
    """The limits to measure: from the maximum down in steps of 25 W, or of a multiple of it for at most nine limits.

    Args:
        min_watts: The lowest limit that may be held.
        max_watts: The highest limit that may be held.

    Returns:
        Limits in descending order. The maximum is first, so that the default configuration is always
        measured.

    Example:
        >>> limits_to_measure(100, 250)
        (250.0, 225.0, 200.0, 175.0, 150.0, 125.0, 100.0)
    """
    width = max_watts - min_watts
    step = 25.0 * max(1, math.ceil(width / 25.0 / (MAX_LIMITS - 1)))
    return tuple(max_watts - step * index for index in range(int(width // step) + 1))


class LimitProfiling:
    """The state of one measurement of all limits.

    To use it, hold `limit_watts` and call `step_done` after each step. If that returns True, read the
    totals, pass them to `add_totals`, and hold `limit_watts`, which may have changed. Repeat until `finished`.
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
        """Count one optimizer step on this number of samples; returns whether to read the totals now."""
        if self.finished:
            return False
        self._steps += 1
        self._samples += samples
        return self._steps >= self._steps_until_read

    def add_totals(self, totals: Totals) -> None:
        """Begin a window with these totals, end it, or estimate how many more steps it needs."""
        if self._start is None:
            self._start, self._steps, self._samples, self._steps_until_read = totals, 0, 0.0, 1
            return
        elapsed = totals.time_seconds - self._start.time_seconds
        if elapsed < MIN_WINDOW_SECONDS:
            per_step = elapsed / self._steps
            more = math.ceil((MIN_WINDOW_SECONDS - elapsed) / per_step) if per_step > 0 else self._steps
            # At most doubled, because the first steps after a change of limit may not be typical.
            self._steps_until_read = self._steps + max(1, min(more, self._steps))
            return
        spent = Totals(totals.energy_joules - self._start.energy_joules, elapsed)
        self._measured.append((self.limit_watts, spent, self._samples))
        self.restart_window()

    def restart_window(self) -> None:
        """Discard the current window and begin it again."""
        self._start, self._steps, self._samples, self._steps_until_read = None, 0, 0.0, WARM_UP_STEPS

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far.

        Args:
            samples_per_epoch: Converts counted samples to fractions of an epoch.
        """
        return tuple(
            LimitMeasurement(limit, spent.energy_joules, spent.time_seconds, samples / samples_per_epoch)
            for limit, spent, samples in self._measured
        )
