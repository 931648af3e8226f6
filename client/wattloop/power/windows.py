"""A measurement window: steps under one power limit, with their energy and time.

A window lasts long enough for a small error, because energy counters advance only every 20 to 100 ms.
Within it no step reads a counter: the number of steps until the next reading doubles at most until the
window is long enough.
"""

from __future__ import annotations

import math
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
        power_limit_watts: The limit of each GPU that was held.
        start: Totals at its start.
        end: Totals at its end.
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

    Args:
        power_limit_watts: The limit that is held.

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
