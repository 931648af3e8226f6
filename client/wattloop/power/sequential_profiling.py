"""Measures power limits during a run by the sequential design: each once, and uncertain ones again.

One pass over the limits takes a choice between two that differ by less than the noise by chance. So a limit
on which the choice depends is repeated until the choice is certain, the epoch ends, or the windows are twice
as many as those of one pass. The design is a function of the windows, so ranks that measure with the same totals hold
the same limits.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from wattloop.power.selectors import Selector
from wattloop.power.sequential_design import SequentialDesign
from wattloop.power.windows import PowerWindow, Totals, WindowRecorder
from wattloop.wire.training_messages import LimitMeasurement

logger = logging.getLogger("wattloop")

# One pass over nine limits takes a minute, so all windows together take about two.
MAX_WINDOWS_PER_LIMIT = 2


class SequentialProfiling:
    """The state of one measurement of all limits.

    To use it, hold `limit_watts` and call `step_done` after each step. If that returns True, read the
    totals, pass them to `add_totals`, and hold `limit_watts`, which may have changed. Repeat until `finished`.
    Windows continue into the next epoch if an epoch is short.

    Args:
        limits_watts: The limits, in descending order.
        gpus: Number of GPUs whose energy the totals have.
        selector: Selects among the measurements.
        repeats: Whether uncertain limits are repeated; otherwise each is measured once.

    Attributes:
        repeats: The same.
    """

    def __init__(self, limits_watts: tuple[float, ...], gpus: int, selector: Selector, *, repeats: bool = True) -> None:
        self.repeats = repeats
        self._selector = selector
        self._design = SequentialDesign(limits_watts, gpus, selector)
        self._failed = self._ended = False
        self._recorder = WindowRecorder(self.limit_watts)

    def with_all_ranks(self, gpus: int) -> SequentialProfiling:
        """A new measurement of the same limits, of the GPUs of all ranks, which repeats uncertain ones."""
        return SequentialProfiling(self.limits_watts, gpus, self._selector)

    @property
    def limits_watts(self) -> tuple[float, ...]:
        """The limits, in descending order. The first one is measured first."""
        return self._design.limits_watts

    @property
    def finished(self) -> bool:
        """Whether every limit has been measured, and the choice is certain or may take no more windows."""
        design = self._design
        is_spent = not self.repeats or len(design.windows) >= MAX_WINDOWS_PER_LIMIT * len(design.limits_watts)
        return self._failed or design.reason is not None or (design.choice is not None and (is_spent or self._ended))

    @property
    def limit_watts(self) -> float:
        """The limit to hold now."""
        return self._design.limit_watts

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
        if window is None:
            return
        try:
            self._design.add(window)
        except (ArithmeticError, ValueError) as error:
            # Such as the logarithm of no energy, if a counter stands still. The training must go on.
            logger.warning("power limits are no longer measured: %s", error)
            self._failed = True
            return
        self._recorder = WindowRecorder(self.limit_watts)

    def reading_missed(self) -> None:
        """The totals could not be read: the window goes on to the next reading."""

    def epoch_ended(self) -> None:
        """Repeat no limit in the next epoch. Limits that were not measured yet are measured there."""
        self._ended = True

    def restart_window(self) -> None:
        """Discard the current window and begin it again."""
        self._recorder.restart()

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far, in descending order.

        After the first pass, energy and time are those at the temperature that the GPUs settle at.

        Args:
            samples_per_epoch: Converts counted samples to fractions of an epoch.
        """
        by_limit: dict[float, list[PowerWindow]] = defaultdict(list)
        for window in self._design.windows:
            by_limit[window.power_limit_watts].append(window)
        choice = None if self._failed else self._design.choice
        estimates = {} if choice is None else {each.power_limit_watts: each for each in choice.estimate.measurements()}
        found = []
        for watts in sorted(by_limit, reverse=True):
            windows, estimate = by_limit[watts], estimates.get(watts)
            samples = sum(each.samples for each in windows)
            if estimate is None:
                energy, time = (
                    sum(each.energy_joules for each in windows),
                    sum(each.time_seconds for each in windows),
                )
            else:
                energy, time = estimate.energy_joules * samples, estimate.time_seconds * samples
            found.append(LimitMeasurement(watts, energy, time, samples / samples_per_epoch))
        return tuple(found)
