"""How a run measures power limits, alone or with the other ranks, and chooses that of its GPUs.

Ranks without a process group of PyTorch measure by a schedule: docs/internals/power-of-ranks.md.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from wattloop.power.selectors import MeasuredLimit, selector_named
from wattloop.power.sequential_design import SequentialDesign, limits_to_measure
from wattloop.power.shared_totals import TotalsExchange
from wattloop.power.windows import MIN_WINDOW_SECONDS, WARM_UP_STEPS, PowerWindow, Totals, WindowRecorder
from wattloop.wire.training_messages import LimitMeasurement, LimitSchedule

if TYPE_CHECKING:
    from wattloop.run.held_gpus import ProcessGpus
    from wattloop.run.verdicts import RankVerdicts
    from wattloop.wire.environment import RunEnvironment

logger = logging.getLogger("wattloop")

# One pass over nine limits takes a minute, so all windows together take about two.
MAX_WINDOWS_PER_LIMIT = 2


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


class LimitChoice:
    """Measures the limits of one process's GPUs, the highest one first, and holds the best one.

    Attributes:
        measured_gpus: Number of GPUs whose energy the measurements have.
        ranks: Number of ranks whose GPUs these are.
    """

    def __init__(self, environment: RunEnvironment, gpus: ProcessGpus, verdicts: RankVerdicts | None) -> None:
        self._rank = environment.rank
        self._selector = selector_named(
            environment.power_selector, eta=environment.eta, max_slowdown_percent=environment.max_slowdown_percent
        )
        self._gpus = gpus
        self._verdicts = verdicts
        self._profiling: ScheduledProfiling | SequentialDesign | None = None
        self._exchange: TotalsExchange | None = None
        self._has_looked_for_exchange = self._is_together = False
        self.measured_gpus = 0
        self.ranks = 1

    def begin(self) -> None:
        """Begin to measure, once the GPUs are known.

        One of several ranks repeats limits only in step with the others.
        """
        highest, allowed = self._gpus.highest_watts, self._gpus.allowed_watts
        self.measured_gpus = self._gpus.count
        if not highest:
            return
        if allowed is None:
            # No limit is allowed. The request fails, and the agent's error gives the reason.
            self._gpus.hold(highest)
            return
        limits = limits_to_measure(*allowed)
        passes = MAX_WINDOWS_PER_LIMIT if self._verdicts is None else 1
        self._profiling = self._design(limits, self._gpus.count, passes)
        self._hold(self._profiling.limit_watts)

    def _design(self, limits: tuple[float, ...], gpus: int, passes: int) -> SequentialDesign:
        return SequentialDesign(limits, gpus, self._selector, max_windows=passes * len(limits))

    def best_limit(self, measurements: tuple[LimitMeasurement, ...]) -> float:
        """The limit in watts that the selector chooses from measurements of any number of epochs."""
        per_epoch = [
            MeasuredLimit(
                each.power_limit_watts,
                each.energy_joules / each.epochs,
                each.time_seconds / each.epochs,
                self.measured_gpus,
            )
            for each in measurements
        ]
        return self._selector.select(per_epoch).power_limit_watts

    def step_done(self, samples: float) -> None:
        """Count an optimizer step on this number of samples, and hold the next limit when a window ends."""
        profiling = self._profiling
        if profiling is None or profiling.finished or not profiling.step_done(samples):
            return
        if not self._has_looked_for_exchange and isinstance(profiling, SequentialDesign):
            # The first step has connected the ranks.
            self._has_looked_for_exchange = True
            if self._verdicts is not None and (group := self._verdicts.group()) is not None:
                self._exchange = TotalsExchange(group, f"{self._verdicts.name}/power")
            elif self._verdicts is not None and self._verdicts.asks_operator:
                profiling = ScheduledProfiling(profiling.limits_watts, times_steps=self._rank == 0)
                self._profiling = profiling
                profiling.step_done(samples)
        totals, interrupted = self._gpus.totals(), self._gpus.was_interrupted()
        if self._exchange is not None and isinstance(profiling, SequentialDesign):
            shared = self._exchange.exchange(
                totals,
                self._gpus.count,
                profiling.limits_watts,
                interrupted=interrupted,
                samples=profiling.recorder.samples,
            )
            if shared is None:
                self._give_up()
                return
            totals, interrupted = shared.totals, shared.interrupted
            self.measured_gpus, self.ranks = shared.gpus, self._exchange.ranks
            if not self._is_together:
                # All ranks have held the highest limit so far, and repeat the same limits from now on.
                self._is_together = True
                self._profiling = profiling = self._design(profiling.limits_watts, shared.gpus, MAX_WINDOWS_PER_LIMIT)
            # Which limit is next follows from the windows, so they must be the same to the last digit.
            profiling.recorder.samples = shared.reported_samples
        self._add(profiling, totals, interrupted=interrupted)

    def _add(
        self, profiling: ScheduledProfiling | SequentialDesign, totals: Totals | None, *, interrupted: bool
    ) -> None:
        before = profiling.limit_watts
        if interrupted and totals is not None:
            profiling.restart_window()
        elif totals is not None:
            try:
                profiling.add_totals(totals)
            except (ArithmeticError, ValueError) as error:
                # Such as the logarithm of no energy, if a counter stands still. The training must go on.
                logger.warning("power limits are no longer measured: %s", error)
                self._give_up()
                return
        elif isinstance(profiling, ScheduledProfiling):
            profiling.reading_missed()
        if profiling.finished:
            self._hold(self.best_limit(profiling.measurements(1.0)))
        elif profiling.limit_watts != before:
            self._hold(profiling.limit_watts)

    def _give_up(self) -> None:
        self._profiling = None
        self._gpus.hold(self._gpus.highest_watts)

    def epoch_ended(self) -> None:
        """An epoch has ended, after the same step on all ranks: no limit is repeated in the next one."""
        profiling = self._profiling
        if not isinstance(profiling, SequentialDesign) or profiling.finished:
            return
        profiling.max_windows = len(profiling.limits_watts)
        if profiling.finished:
            self._hold(self.best_limit(profiling.measurements(1.0)))

    def proposed_schedule(self, epoch: int) -> LimitSchedule | None:
        """The schedule by which all ranks may measure limits after this epoch; None if this rank proposes none."""
        return self._profiling.proposal(epoch) if isinstance(self._profiling, ScheduledProfiling) else None

    def follow(self, schedule: LimitSchedule) -> None:
        """Measure limits by a schedule, from the next step on."""
        profiling, allowed = self._profiling, self._gpus.allowed_watts
        if not isinstance(profiling, ScheduledProfiling) or allowed is None:
            return
        before = profiling.limit_watts
        if not profiling.follow(schedule, allowed):
            logger.warning("this rank measures no power limits: it may not hold %s W", list(schedule.limits_watts))
            self._profiling = None
        elif profiling.limit_watts != before:
            self._hold(profiling.limit_watts)

    def choose_from_all_ranks(self, shared: tuple[LimitMeasurement, ...], gpus: int) -> None:
        """Hold the best limit by the complete measurements of all ranks."""
        profiling = self._profiling
        if not isinstance(profiling, ScheduledProfiling) or profiling.finished or not shared:
            return
        profiling.finished, self.measured_gpus = True, gpus
        self._hold(self.best_limit(shared))

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far in this run: of the GPUs of this rank, or by rank 0 of all ranks together."""
        if self._profiling is None or (self._exchange is not None and not self._exchange.is_first):
            return ()
        return self._profiling.measurements(samples_per_epoch)

    def _hold(self, watts: float) -> None:
        self._gpus.hold(watts)
        if self._gpus.refusal:
            self._profiling = None
