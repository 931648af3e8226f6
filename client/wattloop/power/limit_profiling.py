"""Measures power limits during training, one after another, with no overhead on most steps.

Zeus (NSDI '23, section 4.2) divides the first epoch of a batch size into windows, each under another
limit. Windows continue into the next epoch if an epoch is short.
"""

from __future__ import annotations

import math

from wattloop.power.windows import PowerWindow, Totals, WindowRecorder
from wattloop.wire.training_messages import LimitMeasurement

MAX_LIMITS = 9


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
    """The state of one measurement of all limits, each once; see `wattloop.power.sequential_profiling` for more.

    To use it, hold `limit_watts` and call `step_done` after each step. If that returns True, read the
    totals, pass them to `add_totals`, and hold `limit_watts`, which may have changed. Repeat until `finished`.
    """

    def __init__(self, limits_watts: tuple[float, ...]) -> None:
        self._limits = limits_watts
        self._windows: list[PowerWindow] = []
        self._recorder = WindowRecorder(self.limit_watts)

    @property
    def limits_watts(self) -> tuple[float, ...]:
        """The limits, in the order in which they are measured."""
        return self._limits

    @property
    def finished(self) -> bool:
        """Whether every limit has been measured."""
        return len(self._windows) == len(self._limits)

    @property
    def limit_watts(self) -> float:
        """The limit to hold now."""
        return self._limits[min(len(self._windows), len(self._limits) - 1)]

    @property
    def samples(self) -> float:
        """Number of samples counted in the window; ranks that measure together agree on one."""
        return self._recorder.samples

    def agree_on_samples(self, samples: float) -> None:
        """Replace the number of samples counted in the window."""
        self._recorder.samples = samples

    def step_done(self, samples: float) -> bool:
        """Count one optimizer step on this number of samples; returns whether to read the totals now."""
        return not self.finished and self._recorder.step_done(samples)

    def add_totals(self, totals: Totals) -> None:
        """Begin a window with these totals, end it, or estimate how many more steps it needs."""
        window = self._recorder.add_totals(totals)
        if window is not None:
            self._windows.append(window)
            self._recorder = WindowRecorder(self.limit_watts)

    def reading_missed(self) -> None:
        """The totals could not be read: the window goes on to the next reading."""

    def restart_window(self) -> None:
        """Discard the current window and begin it again."""
        self._recorder.restart()

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far.

        Args:
            samples_per_epoch: Converts counted samples to fractions of an epoch.
        """
        return tuple(
            LimitMeasurement(
                each.power_limit_watts, each.energy_joules, each.time_seconds, each.samples / samples_per_epoch
            )
            for each in self._windows
        )
