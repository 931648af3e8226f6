"""Measures power limits by a schedule that all ranks of a run have (docs/internals/power-of-ranks.md)."""

import math

from wattloop.power.windows import MIN_WINDOW_SECONDS, WARM_UP_STEPS, PowerWindow, Totals, WindowRecorder
from wattloop.wire.training_messages import LimitMeasurement, LimitSchedule


class ScheduledProfiling:
    """The state of one measurement of all limits by a schedule; used as `SequentialDesign`.

    Args:
        limits_watts: The limits that this rank would measure, the highest one first.
        times_steps: Whether this rank proposes the schedule.

    Attributes:
        finished: Whether the limit was chosen from the sums.
    """

    def __init__(self, limits_watts: tuple[float, ...], *, times_steps: bool) -> None:
        self._limits = limits_watts
        self._timer = WindowRecorder(limits_watts[0]) if times_steps else None
        self._timed_steps = 0
        self._seconds_per_step = 0.0
        self._schedule: LimitSchedule | None = None
        self._position = 0
        self._steps = 0
        self._samples = 0.0
        self._start: Totals | None = None
        self._windows: list[PowerWindow] = []
        self.finished = False

    @property
    def limit_watts(self) -> float:
        """The limit to hold now: outside the windows the highest one."""
        return self._limits[self._position] if self._measures else self._limits[0]

    @property
    def _measures(self) -> bool:
        return self._schedule is not None and self._position < len(self._limits)

    def proposal(self, epoch: int) -> LimitSchedule | None:
        """The schedule to begin after this epoch; None if this rank proposes none, or none yet."""
        if not self._seconds_per_step or self._schedule is not None:
            return None
        steps = max(math.ceil(MIN_WINDOW_SECONDS / self._seconds_per_step), 1)
        # The operator stores whole watts. None may fall below the lowest limit.
        limits = tuple(math.floor(watts) for watts in self._limits if math.floor(watts) >= self._limits[-1])
        return LimitSchedule(epoch, steps, limits) if limits else None

    def follow(self, schedule: LimitSchedule, allowed_watts: tuple[float, float]) -> bool:
        """Begin the windows with the next step; returns whether this rank may hold all limits of the schedule."""
        lowest, highest = allowed_watts
        if self._schedule is not None:
            return True
        if not all(lowest <= watts <= highest for watts in schedule.limits_watts):
            return False
        self._schedule, self._limits = schedule, tuple(map(float, schedule.limits_watts))
        self._timer = None
        return True

    def step_done(self, samples: float) -> bool:
        """Count one optimizer step on this number of samples; returns whether to read the totals now."""
        if self._timer is not None:
            self._timed_steps += 1
            return self._timer.step_done(samples)
        if not self._measures or self._schedule is None:
            return False
        self._steps += 1
        self._samples += samples
        return self._steps in (WARM_UP_STEPS, WARM_UP_STEPS + self._schedule.steps)

    def add_totals(self, totals: Totals) -> None:
        """Begin a window with these totals, or end it."""
        if self._timer is not None:
            had_begun = self._timer.has_begun
            window = self._timer.add_totals(totals)
            if not had_begun:
                self._timed_steps = 0
            elif window is not None:
                self._seconds_per_step = window.time_seconds / self._timed_steps
                self._timer = None
        elif self._steps == WARM_UP_STEPS:
            self._start, self._samples = totals, 0.0
        elif self._measures:
            if self._start is not None:
                energy = totals.energy_joules - self._start.energy_joules
                seconds = totals.time_seconds - self._start.time_seconds
                self._windows.append(PowerWindow(self.limit_watts, self._start, totals, energy, seconds, self._samples))
            self._next_limit()

    def reading_missed(self) -> None:
        """The totals could not be read: the limit is left out, because the other ranks do not wait."""
        if self._timer is None:
            self.restart_window()

    def restart_window(self) -> None:
        """Leave the limit out, which was not held all the time: the other ranks do not wait."""
        if self._timer is not None:
            self._timer.restart()
            self._timed_steps = 0
        elif self._steps == WARM_UP_STEPS:
            self._start = None
        elif self._measures:
            self._next_limit()

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """The limits that this rank has measured so far; see `SequentialDesign.measurements`."""
        return tuple(
            LimitMeasurement(
                each.power_limit_watts, each.energy_joules, each.time_seconds, each.samples / samples_per_epoch
            )
            for each in self._windows
        )

    def _next_limit(self) -> None:
        self._position += 1
        self._steps, self._samples, self._start = 0, 0.0, None
